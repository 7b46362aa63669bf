"""Whatever goes through all fields of several structures together: arithmetic, assignment, functions of numpy.

* OP-1: structures that are used together have the same fields; a value that is no structure is used with every field.
* OP-2: a field that is None in one of them is None in what comes out, and is left alone by assignment.
* OP-3: that the fields fit is known before the first array is touched.
* OP-4: an error of one array names its field.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any, Self, TypeAlias

    Leaves: TypeAlias = "tuple[str, list[Any]]"


def together(first: Operators, others: Sequence[Any], path: str = "") -> Iterator[Leaves]:
    """The path of each field that is no structure, with what the first and all others have there."""
    names = first._fields
    parts: list[Mapping[str, Any] | None] = []
    for other in others:
        fields = other._fields if isinstance(other, Operators) else other
        if not isinstance(fields, Mapping):
            parts.append(None)
            continue
        if fields.keys() != names.keys():
            raise ValueError(difference(names, fields, path.removesuffix(".")))
        parts.append(fields)
    for name, value in names.items():
        here = f"{path}{name}"
        beside = [other if part is None else part[name] for other, part in zip(others, parts, strict=True)]
        leaves = [value, *beside]
        if any(leaf is None for leaf in leaves):
            yield here, leaves
        elif isinstance(value, Operators):
            yield from together(value, beside, f"{here}.")
        elif any(isinstance(other, Operators | Mapping) for other in beside):
            raise ValueError(f"field {here!r} is an array in one structure and a structure in another")
        else:
            yield here, leaves


def difference(names: Mapping[str, Any], others: Mapping[str, Any], path: str) -> str:
    where = f" in {path!r}" if path else ""
    sides = [("only the first has", names.keys() - others.keys()), ("only another has", others.keys() - names.keys())]
    told = [f"{what} {', '.join(sorted(map(str, found)))}" for what, found in sides if found]
    return f"structures of different fields{where}: {' and '.join(told)}"


def combined(function: Callable[..., Any], first: Operators, others: Sequence[Any]) -> Any:
    """The structure of what the function makes of each array and those that belong to it."""
    made = {path: called(function, path, leaves) for path, leaves in list(together(first, others))}
    return first._rebuilt(made)


def called(function: Callable[..., Any], path: str, leaves: list[Any]) -> Any:
    """What the function makes of the arrays of one field: None if one of them is."""
    for leaf in leaves:
        if leaf is None:
            return None
    try:
        return function(*leaves)
    except Exception as error:
        error.add_note(note(path, leaves))
        raise


def note(path: str, leaves: Sequence[Any]) -> str:
    shapes = ", ".join(str(tuple(leaf.shape)) for leaf in leaves if hasattr(leaf, "shape"))
    return f"in field {path!r}" + (f", of shape {shapes}" if shapes else "")


def _forward(function: Callable[[Any, Any], Any]) -> Any:
    def operate(self: Operators, other: Any) -> Any:
        return NotImplemented if other is None else combined(function, self, [other])

    return operate


def _reflected(function: Callable[[Any, Any], Any]) -> Any:
    def operate(self: Operators, other: Any) -> Any:
        return NotImplemented if other is None else combined(lambda leaf, value: function(value, leaf), self, [other])

    return operate


def _in_place(function: Callable[[Any, Any], Any]) -> Any:
    def operate(self: Operators, other: Any) -> Any:
        if other is None:
            return NotImplemented
        for path, leaves in list(together(self, [other])):
            called(function, path, leaves)
        return self

    return operate


class Operators:
    """The operators of `NamedArray`."""

    __slots__ = ()

    _fields: dict[str, Any]

    def _with(self, fields: dict[str, Any]) -> Self:
        """A structure of the same class and metadata with other fields."""
        raise NotImplementedError

    def _rebuilt(self, leaves: Mapping[str, Any], path: str = "") -> Self:
        """The same with these arrays, by their paths, in place of those that are there."""
        made = {}
        for name, value in self._fields.items():
            here = f"{path}{name}"
            made[name] = leaves[here] if here in leaves else value._rebuilt(leaves, f"{here}.")
        return self._with(made)

    if TYPE_CHECKING:

        def __add__(self, other: Any, /) -> Self: ...
        def __radd__(self, other: Any, /) -> Self: ...
        def __iadd__(self, other: Any, /) -> Self: ...
        def __sub__(self, other: Any, /) -> Self: ...
        def __rsub__(self, other: Any, /) -> Self: ...
        def __isub__(self, other: Any, /) -> Self: ...
        def __mul__(self, other: Any, /) -> Self: ...
        def __rmul__(self, other: Any, /) -> Self: ...
        def __imul__(self, other: Any, /) -> Self: ...
        def __truediv__(self, other: Any, /) -> Self: ...
        def __rtruediv__(self, other: Any, /) -> Self: ...
        def __itruediv__(self, other: Any, /) -> Self: ...
        def __floordiv__(self, other: Any, /) -> Self: ...
        def __rfloordiv__(self, other: Any, /) -> Self: ...
        def __ifloordiv__(self, other: Any, /) -> Self: ...
        def __mod__(self, other: Any, /) -> Self: ...
        def __rmod__(self, other: Any, /) -> Self: ...
        def __imod__(self, other: Any, /) -> Self: ...
        def __pow__(self, other: Any, /) -> Self: ...
        def __rpow__(self, other: Any, /) -> Self: ...
        def __ipow__(self, other: Any, /) -> Self: ...

    else:
        for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow"):
            locals()[f"__{_name}__"] = _forward(getattr(operator, _name))
            locals()[f"__r{_name}__"] = _reflected(getattr(operator, _name))
            locals()[f"__i{_name}__"] = _in_place(getattr(operator, f"i{_name}"))
        del _name

    def __neg__(self) -> Self:
        made: Self = combined(operator.neg, self, [])
        return made

    def __pos__(self) -> Self:
        made: Self = combined(operator.pos, self, [])
        return made

    def __abs__(self) -> Self:
        made: Self = combined(abs, self, [])
        return made

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        """Functions of numpy such as `np.sqrt` and `np.maximum` go through all fields."""
        if method != "__call__" or ufunc.nout != 1 or "out" in options:
            return NotImplemented
        place = next(at for at, value in enumerate(inputs) if isinstance(value, Operators))

        def call(leaf: Any, *beside: Any) -> Any:
            return ufunc(*beside[:place], leaf, *beside[place:], **options)

        return combined(call, inputs[place], [*inputs[:place], *inputs[place + 1 :]])

    def __array__(self, *_: object, **__: object) -> Any:
        raise TypeError("a NamedArray is many arrays, not one: take a field, or apply the function to all of them")
