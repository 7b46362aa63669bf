"""The pickler of last resort: cloudpickle, with functions done our way.

Owns nothing but that combination. A module of its own because importing cloudpickle takes 30 ms: only
`_pickling.encode_by_cloudpickle` imports this, when it must.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cloudpickle  # type: ignore[import-untyped, unused-ignore]

from paceline._pickling import Parts

if TYPE_CHECKING:
    from io import BytesIO

    from paceline._pickling import Reach


class CloudPickler(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
    """Classes by value, tracked so that they keep their identity on the way back; functions as `Pickler` does."""

    def __init__(self, file: BytesIO, reach: Reach | None = None) -> None:
        super().__init__(file, 5)
        self._parts = Parts(reach)

    def reducer_override(self, value: Any) -> Any:
        reduced = self._parts.reduce(value)
        return super().reducer_override(value) if reduced is NotImplemented else reduced
