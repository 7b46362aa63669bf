"""The structure itself: named fields that are indexed, copied and passed on together.

* NA-1: a field is an array, None, or a structure; whatever else is given becomes one of them or is refused by name.
* NA-2: what makes a structure of another one keeps its class and its metadata; of several, those of the first.
* NA-3: pickled with buffers out of band, the arrays are those buffers, whatever their strides.
"""

from __future__ import annotations

from collections.abc import Mapping

from paceline._named_array import arrays
from paceline._named_array.declared import Declaration, read
from paceline._named_array.operators import Operators, called, combined, together
from paceline._named_array.passing import Passing

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

    S = TypeVar("S", bound="NamedArray")
else:

    def dataclass_transform(**_):
        return lambda kind: kind


@dataclass_transform(kw_only_default=True)
class NamedArray(Passing):
    """A structure of arrays that is used as one array.

    Fields are arrays of numpy or tensors of torch, None, or structures again. An index goes to all of them.

    >>> import numpy as np
    >>> import paceline as pl
    >>> steps = pl.NamedArray(reward=np.arange(4.0), state={"x": np.zeros((4, 2)), "y": None})
    >>> steps[1:3]
    NamedArray(reward=float64[2], state=NamedArray(x=float64[2, 2], y=None))
    >>> steps[1:3] = 5
    >>> steps.reward
    array([0., 5., 5., 3.])
    >>> (steps * 2).state.x[1]
    array([10., 10.])

    A subclass declares its fields. One with a default may be left out.

    >>> class Step(pl.NamedArray):
    ...     reward: np.ndarray
    ...     done: np.ndarray | None = None
    >>> Step(reward=[1.0, 2.0])
    Step(reward=float64[2], done=None)
    """

    __slots__ = ("__weakref__", "_fields", "_metadata")

    _metadata: dict[str, Any]
    _declared: ClassVar[Declaration | None] = None

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        cls._declared = read(cls, NamedArray)

    def __init__(self, /, **fields: Any) -> None:
        _set(self, _checked(type(self), fields), {})

    # Making and taking apart

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> Self:
        """The structure of a dict; dicts in it are structures, too.

        >>> NamedArray.from_dict({"a": [1, 2], "b": {"c": 3.0}})
        NamedArray(a=int64[2], b=NamedArray(c=float64[]))
        """
        return make(cls, _checked(cls, fields), dict(metadata or {}))

    @classmethod
    def from_dataclass(cls, value: Any) -> Self:
        """The structure of the fields of a dataclass, and of those in it.

        >>> from dataclasses import dataclass
        >>> @dataclass
        ... class Point:
        ...     x: list
        ...     y: float = 0.5
        >>> NamedArray.from_dataclass(Point([1, 2]))
        NamedArray(x=int64[2], y=float64[])
        """
        fields = _fields_of(value)
        if fields is None:
            raise TypeError(f"from_dataclass takes an object of a dataclass, not a {type(value).__name__}")
        return cls.from_dict(fields)

    @classmethod
    def from_flattened(cls, leaves: Mapping[str, Any], metadata: Mapping[str, Any] | None = None) -> Self:
        """The structure of what `flatten` gives.

        >>> NamedArray.from_flattened({"a": [1], "b.c": [2], "b.d": None})
        NamedArray(a=int64[1], b=NamedArray(c=int64[1], d=None))
        """
        nested: dict[str, Any] = {}
        for path, leaf in leaves.items():
            *above, last = path.split(".")
            place = nested
            for name in above:
                place = place.setdefault(name, {})
                if not isinstance(place, dict):
                    raise ValueError(f"field {path!r} is inside of {name!r}, which is no structure")
            if last in place:
                raise ValueError(f"field {path!r} is there twice")
            place[last] = leaf
        return cls.from_dict(nested, metadata)

    def to_dict(self) -> dict[str, Any]:
        """The fields as a dict of dicts and arrays. The arrays are not copied.

        >>> NamedArray(a=None, b={"c": None}).to_dict()
        {'a': None, 'b': {'c': None}}
        """
        return _nested(self, lambda leaf: leaf)

    def flatten(self) -> dict[str, Any]:
        """Every array, and None, by its path, those of nested structures as well.

        >>> NamedArray(a=None, b={"c": None}).flatten()
        {'a': None, 'b.c': None}
        """
        return {path: leaves[0] for path, leaves in together(self, [])}

    # Fields

    def keys(self) -> list[str]:
        """The names of the fields.

        >>> NamedArray(a=1, b=None).keys()
        ['a', 'b']
        """
        return list(self._fields)

    def values(self) -> list[Any]:
        """The fields: arrays, None, and structures."""
        return list(self._fields.values())

    def items(self) -> list[tuple[str, Any]]:
        """The names of the fields, each with the field.

        >>> [(name, field) for name, field in NamedArray(a=None).items()]
        [('a', None)]
        """
        return list(self._fields.items())

    @property
    def metadata(self) -> dict[str, Any]:
        """A dict for whatever else is to be known. It goes along with slices, results and copies.

        >>> sample = NamedArray(a=[1, 2, 3])
        >>> sample.metadata["policy"] = "latest"
        >>> sample[:2].metadata
        {'policy': 'latest'}
        """
        return self._metadata

    def __getattr__(self, name: str) -> Any:
        # Reached only where there is no such method. Names that begin with an underscore are asked for by copy, pickle
        # and numpy, before there are any fields, too.
        if not name.startswith("_") and name in self._fields:
            return self._fields[name]
        raise AttributeError(f"{type(self).__name__} has no field {name!r}: there are {_names(self)}")

    def __setattr__(self, name: str, value: Any) -> None:
        if name not in self._fields or hasattr(type(self), name):
            raise AttributeError(
                f"{type(self).__name__} has no field {name!r} to set: there are {_names(self)}; "
                f"structure[{name!r}] = ... adds one"
            )
        self[name] = value

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._fields]

    def __contains__(self, path: object) -> bool:
        return isinstance(path, str) and _found(self, path) is not None

    # Indexing

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, str):
            home = _found(self, index)
            if home is None:
                raise KeyError(f"no field {index!r}: there are {_names(self)}")
            return home._fields[index.rpartition(".")[2]]
        return combined(lambda leaf: leaf[index], self, [])

    def __setitem__(self, index: Any, value: Any) -> None:
        if isinstance(index, str):
            return _put(self, index, value)
        if value is None:
            raise TypeError("None cannot be put into arrays; structure['field'] = None takes a field away")

        def assign(leaf: Any, part: Any) -> None:
            leaf[index] = part

        for path, leaves in list(together(self, [value])):
            called(assign, path, leaves)

    def __delitem__(self, path: str) -> None:
        home = _found(self, path)
        if home is None:
            raise KeyError(f"no field {path!r}: there are {_names(self)}")
        if home._declared is not None:
            raise TypeError(f"{type(home).__name__} declares its fields: set {path!r} to None instead")
        del home._fields[path.rpartition(".")[2]]

    def __len__(self) -> int:
        return self.length()

    def __bool__(self) -> bool:
        return True  # as of any object: whether there is a structure, not whether it has rows

    def __iter__(self) -> Iterator[Self]:
        return (self[row] for row in range(len(self)))

    def length(self, axis: int = 0) -> int:
        """How long all arrays are along an axis.

        >>> NamedArray(a=[[1, 2, 3]], b=[[4, 5, 6]]).length(1)
        3
        """
        found = {path: called(lambda leaf: leaf.shape[axis], path, [leaf]) for path, leaf in self.flatten().items()}
        lengths = {path: length for path, length in found.items() if length is not None}
        if len(set(lengths.values())) > 1:
            told = ", ".join(f"{path}: {length}" for path, length in lengths.items())
            raise ValueError(f"the fields differ in length along axis {axis}: {told}")
        if not lengths:
            raise ValueError("a structure without arrays has no length")
        return int(next(iter(lengths.values())))

    # What it is made of

    @property
    def shapes(self) -> dict[str, Any]:
        """The shape of every array, as a dict of dicts.

        >>> NamedArray(a=[1, 2], b={"c": [[3]], "d": None}).shapes
        {'a': (2,), 'b': {'c': (1, 1), 'd': None}}
        """
        return _nested(self, lambda leaf: None if leaf is None else tuple(leaf.shape))

    @property
    def dtypes(self) -> dict[str, Any]:
        """The type of the values of every array, as a dict of dicts.

        >>> NamedArray(a=[True, False], b=None).dtypes
        {'a': dtype('bool'), 'b': None}
        """
        return _nested(self, lambda leaf: None if leaf is None else leaf.dtype)

    @property
    def nbytes(self) -> int:
        """How many bytes all arrays take.

        >>> NamedArray(a=[1.0, 2.0], b={"c": [True]}).nbytes
        17
        """
        return sum(arrays.size(leaf) for leaf in self.flatten().values() if leaf is not None)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{name}={_shown(field)}' for name, field in self._fields.items())})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, NamedArray):
            return NotImplemented
        return _agree(self, other, arrays.same)

    __hash__ = None  # type: ignore[assignment]

    def allclose(self, other: NamedArray, *, rtol: float = 1e-5, atol: float = 1e-8) -> bool:
        """Whether both have the same fields, of the same shapes, and their values differ by next to nothing.

        >>> NamedArray(a=[0.3]).allclose(NamedArray(a=[0.1 + 0.2]))
        True
        """
        return _agree(self, other, lambda mine, theirs: arrays.close(mine, theirs, rtol, atol))

    # Copies, and pickles

    def __reduce__(self) -> tuple[Any, ...]:
        fields = {
            name: field if field is None or isinstance(field, NamedArray) else arrays.for_pickle(field)
            for name, field in self._fields.items()
        }
        return rebuild, (type(self), fields, self._metadata)

    def __copy__(self) -> Self:
        return make(type(self), dict(self._fields), dict(self._metadata))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        from copy import deepcopy

        return make(type(self), deepcopy(self._fields, memo), deepcopy(self._metadata, memo))

    def _with(self, fields: dict[str, Any]) -> Self:
        return make(type(self), {name: field_of(value, name) for name, value in fields.items()}, dict(self._metadata))


def rebuild(kind: type[NamedArray], fields: dict[str, Any], metadata: dict[str, Any]) -> NamedArray:
    """The other end of pickling."""
    return make(kind, fields, metadata)


def make(kind: type[S], fields: dict[str, Any], metadata: dict[str, Any]) -> S:
    made = kind.__new__(kind)
    _set(made, fields, metadata)
    return made


def _set(structure: NamedArray, fields: dict[str, Any], metadata: dict[str, Any]) -> None:
    object.__setattr__(structure, "_fields", fields)
    object.__setattr__(structure, "_metadata", metadata)


def _checked(kind: type[NamedArray], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of a new structure of this class."""
    fields = dict(fields)
    declared = kind._declared
    if declared is not None:
        fields = declared.complete(kind, fields)
    for name in fields:
        if not isinstance(name, str) or not name or "." in name:
            raise ValueError(f"a field cannot have the name {name!r}: names are text without a dot")
    return {name: field_of(value, name, _kind_of(kind, name)) for name, value in fields.items()}


def _kind_of(kind: type[NamedArray], name: str) -> type[NamedArray]:
    declared = kind._declared
    return NamedArray if declared is None else declared.kind_of(name, NamedArray)


def field_of(value: Any, path: str, kind: type[NamedArray] = NamedArray) -> Any:
    """NA-1"""
    if value is None or isinstance(value, kind):
        return value
    if isinstance(value, NamedArray):
        return make(kind, _checked(kind, value._fields), dict(value._metadata))
    fields = value if isinstance(value, Mapping) else _fields_of(value)
    return arrays.as_array(value, path) if fields is None else kind.from_dict(fields)


def _fields_of(value: Any) -> Mapping[str, Any] | None:
    """The fields of an object of a dataclass or of a named tuple."""
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {name: getattr(value, name) for name in value.__dataclass_fields__}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        fields: Mapping[str, Any] = value._asdict()
        return fields
    return None


def _found(structure: NamedArray, path: str) -> NamedArray | None:
    """The structure that has the last name of a path, if there is one."""
    *above, last = path.split(".")
    for name in above:
        nested = structure._fields.get(name)
        if not isinstance(nested, NamedArray):
            return None
        structure = nested
    return structure if last in structure._fields else None


def _put(structure: NamedArray, path: str, value: Any) -> None:
    above, _, last = path.rpartition(".")
    home = structure[above] if above else structure
    if not isinstance(home, NamedArray):
        raise KeyError(f"{above!r} is no structure, so it cannot have the field {last!r}")
    if home._declared is not None and last not in home._fields:
        raise KeyError(f"{type(home).__name__} has no field {last!r}: there are {_names(home)}")
    if not last:
        raise ValueError(f"a field cannot have the name {last!r}")
    home._fields[last] = field_of(value, path, _kind_of(type(home), last))


def _agree(first: NamedArray, second: NamedArray, compare: Callable[[Any, Any], bool]) -> bool:
    mine, theirs = first.flatten(), second.flatten()
    return mine.keys() == theirs.keys() and all(
        leaf is theirs[path] if leaf is None or theirs[path] is None else compare(leaf, theirs[path])
        for path, leaf in mine.items()
    )


def _nested(structure: NamedArray, function: Callable[[Any], Any]) -> dict[str, Any]:
    return {
        name: _nested(field, function) if isinstance(field, NamedArray) else function(field)
        for name, field in structure._fields.items()
    }


def _names(structure: NamedArray) -> str:
    return ", ".join(structure._fields) or "none"


def _shown(field: Any) -> str:
    if field is None or isinstance(field, Operators):
        return repr(field)
    kind = str(field.dtype)
    return f"{kind}[{', '.join(str(length) for length in field.shape)}]"
