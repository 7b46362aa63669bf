"""The pickler of last resort: cloudpickle, with functions and classes done our way.

Owns: how a class is taken apart (`_slot.classes` puts it together). A module of its own because importing cloudpickle
takes 30 ms: it is imported only when something needs it.
"""

from __future__ import annotations

from io import BytesIO
from typing import TYPE_CHECKING, Any

import cloudpickle

from paceline._native import Watch
from paceline._pickling import Parts, Reach
from paceline._slot import classes

if TYPE_CHECKING:
    from paceline._native import Collector
    from paceline._slot.classes import Record


class CloudPickler(cloudpickle.Pickler):  # type: ignore[misc, unused-ignore]
    """Pickles values. Classes go as their definitions, which are made once and kept."""

    def __init__(self, file: BytesIO, reach: Reach | None = None, buffers: Collector | None = None) -> None:
        super().__init__(file, 5, buffers)
        self._parts = Parts(reach)

    def reducer_override(self, value: Any) -> Any:
        reduced = self._parts.reduce(value)
        if reduced is not NotImplemented:
            return reduced
        reduced = super().reducer_override(value)
        if isinstance(value, type) and reduced is not NotImplemented and len(reduced) == 6:
            return self._class(value, _with_slots(value, reduced))
        return reduced

    def _class(self, kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        return classes.defined, definition(kind)


class FunctionPickler(CloudPickler):
    """Pickles functions, with their classes inside, so that both see one set of globals.

    A function is pickled because it is new or has changed, and so may be the classes it uses: each gets a new version.
    """

    def _class(self, kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        record = classes.record_of(kind)
        classes.renew(record)
        return _inside(record, reduced)


class _DefinitionPickler(CloudPickler):
    """Pickles one class, with those it needs inside."""

    def __init__(self, file: BytesIO, reach: Reach) -> None:
        super().__init__(file, reach)
        self.reached: list[Record] = []

    def _class(self, kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
        record = classes.record_of(kind)
        if classes.changed(record):
            classes.renew(record)
        self.reached.append(record)
        return _inside(record, reduced)


def definition(kind: type) -> tuple[bytes, int, bytes]:
    """A class by value, as `classes.defined` takes it. Made anew only if the class, or what it uses, has changed."""
    with classes.lock:
        record = classes.record_of(kind)
        if record.data is not None and record.own and not _fresh(record):
            for reached in record.reached:
                classes.renew(reached)
        data = record.data
        if data is None:
            data = _define(record)
        return record.token, record.version, data


def _fresh(record: Record) -> bool:
    return (
        record.watch is not None
        and record.watch.unchanged()
        and not any(classes.changed(reached) for reached in record.reached)
    )


def _define(record: Record) -> bytes:
    file = BytesIO()
    reach = Reach(Watch.MISSING)
    pickler = _DefinitionPickler(file, reach)
    pickler.dump(record.kind)
    record.reached = pickler.reached
    record.watch = Watch(reach.globals, reach.cells)
    record.data = file.getvalue()
    return record.data


def _with_slots(kind: type, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    """Cloudpickle builds a class without its `__slots__`. Its instances could not come back to the original then."""
    make, args, *rest = reduced
    slots = vars(kind).get("__slots__")
    if make.__name__ != "_make_skeleton_class" or not isinstance(slots, (str, tuple, list)):
        return reduced
    constructor, name, bases, attributes, *others = args
    return make, (constructor, name, bases, {"__slots__": slots, **attributes}, *others), *rest


def _inside(record: Record, reduced: tuple[Any, ...]) -> tuple[Any, ...]:
    make, args, state, _, _, put = reduced
    if isinstance(args[-2], str):
        # Cloudpickle's own token. With it cloudpickle would find, and then fill anew, a class that the register has
        # forgotten, although it may be the original.
        args = (*args[:-2], None, args[-1])
    contents = (record.version, state, put)
    return classes.skeleton, (record.token, make, args), contents, None, None, classes.settle
