"""What a structure does with all of its fields, or with those of many structures.

Owns the methods, and how fields of many structures are put together; `operators` has the rules.
"""

from __future__ import annotations

from paceline._named_array import arrays
from paceline._named_array.operators import Operators, called, combined, difference, note, together

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Any, Self


class Functions(Operators):
    """The methods of `NamedArray` that go through all fields."""

    __slots__ = ()

    def apply(self, function: Callable[..., Any], *others: Any) -> Self:
        """The structure of what a function makes of each array, and of those of other structures at the same place.

        >>> import numpy as np
        >>> from paceline import NamedArray
        >>> a, b = NamedArray(x=[1, 5]), NamedArray(x=[3, 2])
        >>> a.apply(np.maximum, b).x
        array([3, 5])
        """
        made: Self = combined(function, self, others)
        return made

    def map(self, function: Callable[[str, Any], Any]) -> Self:
        """As `apply`, with a function that gets the path of each array, and then the array.

        >>> from paceline import NamedArray
        >>> NamedArray(x=[1.0], y={"z": [2.0]}).map(lambda path, array: array * 0 if path == "y.z" else array).y.z
        array([0.])
        """
        made = {}
        for path, (leaf,) in together(self, []):
            made[path] = None if leaf is None else called(function, path, [path, leaf])
        return self._rebuilt(made)

    @classmethod
    def stack(cls, structures: Iterable[Self], axis: int = 0, *, fill: Any = None) -> Self:
        """One structure of many, along a new axis. A field that is None in all of them stays so. One that is None in
        some is an error, unless `fill` says which value to put there.

        >>> from paceline import NamedArray
        >>> NamedArray.stack([NamedArray(a=[1, 2]), NamedArray(a=[3, 4]), NamedArray(a=None)], fill=0).a
        array([[1, 2],
               [3, 4],
               [0, 0]])
        """
        return cls.aggregate(structures, lambda leaves: arrays.stack(leaves, axis), fill=fill)

    @classmethod
    def concatenate(cls, structures: Iterable[Self], axis: int = 0, *, fill: Any = None) -> Self:
        """One structure of many, one behind the other along an axis. `fill` as for `stack`.

        >>> from paceline import NamedArray
        >>> NamedArray.concatenate([NamedArray(a=[1, 2]), NamedArray(a=[3])]).a
        array([1, 2, 3])
        """
        return cls.aggregate(structures, lambda leaves: arrays.concatenate(leaves, axis), fill=fill)

    @classmethod
    def aggregate(cls, structures: Iterable[Self], function: Callable[[list[Any]], Any], *, fill: Any = None) -> Self:
        """One structure of many: the function gets the arrays of each field as a list. `fill` as for `stack`.

        >>> from paceline import NamedArray
        >>> NamedArray.aggregate([NamedArray(a=[1, 2]), NamedArray(a=[3, 4])], sum).a
        array([4, 6])
        """
        many = list(structures)
        if not many or not all(isinstance(one, Operators) for one in many):
            raise ValueError("there must be at least one structure, and nothing else among them")
        made: Self = _aggregated("", many, function, fill)
        return made

    def sum(self, axis: int | None = None) -> Self:
        """The sum of each array, or of each along an axis.

        >>> from paceline import NamedArray
        >>> NamedArray(a=[[1, 2], [3, 4]]).sum(axis=0).a
        array([4, 6])
        """
        return self.apply(lambda leaf: arrays.reduced(leaf, "sum", axis))

    def mean(self, axis: int | None = None) -> Self:
        """The mean of each array, or of each along an axis.

        >>> from paceline import NamedArray
        >>> float(NamedArray(a=[1.0, 2.0]).mean().a)
        1.5
        """
        return self.apply(lambda leaf: arrays.reduced(leaf, "mean", axis))

    def max(self, axis: int | None = None) -> Self:
        """The largest value of each array, or of each along an axis.

        >>> from paceline import NamedArray
        >>> int(NamedArray(a=[1, 2]).max().a)
        2
        """
        return self.apply(lambda leaf: arrays.reduced(leaf, "max", axis))

    def min(self, axis: int | None = None) -> Self:
        """The least value of each array, or of each along an axis.

        >>> from paceline import NamedArray
        >>> int(NamedArray(a=[1, 2]).min().a)
        1
        """
        return self.apply(lambda leaf: arrays.reduced(leaf, "min", axis))

    def full_like(self, value: Any) -> Self:
        """A structure of arrays of the same shapes and types, full of one value.

        >>> from paceline import NamedArray
        >>> NamedArray(a=[1, 2], b=[[0.5]]).full_like(0).b
        array([[0.]])
        """
        return self.apply(lambda leaf: arrays.filled_like(leaf, value))

    def copy(self) -> Self:
        """The same with arrays and a dict of metadata of its own.

        >>> from paceline import NamedArray
        >>> first = NamedArray(a=[1, 2])
        >>> second = first.copy()
        >>> second.a[0] = 7
        >>> first.a
        array([1, 2])
        """
        return self.apply(arrays.copied)

    def to_numpy(self) -> Self:
        """All fields as arrays of numpy, without a copy where that can be."""
        return self.apply(arrays.to_numpy)

    def to_torch(self, device: Any = None) -> Self:
        """All fields as tensors of torch, without a copy where that can be; on a device, if one is named."""
        return self.apply(lambda leaf: arrays.to_torch(leaf, device))


def _aggregated(path: str, values: list[Any], function: Callable[[list[Any]], Any], fill: Any) -> Any:
    """What becomes of one field of all structures, or of the structures themselves."""
    present = [value for value in values if value is not None]
    if not present:
        return None
    nested = [isinstance(value, Operators) for value in present]
    if any(nested):
        if not all(nested):
            raise ValueError(f"field {path!r} is an array in one structure and a structure in another")
        for other in present[1:]:
            if other._fields.keys() != present[0]._fields.keys():
                raise ValueError(difference(present[0]._fields, other._fields, path))
        made = {}
        for name in present[0]._fields:
            part = [None if value is None else value._fields[name] for value in values]
            made[name] = _aggregated(f"{path}.{name}" if path else name, part, function, fill)
        return present[0]._with(made)
    if len(present) < len(values):
        if fill is None:
            raise ValueError(
                f"field {path!r} is None in {len(values) - len(present)} of {len(values)} structures: "
                "fill=0 puts zeros there"
            )
        values = [arrays.filled_like(present[0], fill) if value is None else value for value in values]
    try:
        return function(values)
    except Exception as error:
        error.add_note(note(path, values))
        raise
