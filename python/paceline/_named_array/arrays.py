"""What numpy and torch do differently.

Owns: which values are arrays, and the few operations for which the two have different names. numpy is imported when a
value must become an array, torch only where it is loaded already or a structure that is read was made of its tensors.
"""

from __future__ import annotations

import sys
from importlib import import_module

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any


def numpy() -> Any:
    return import_module("numpy")


def torch() -> Any:
    return import_module("torch")


def is_tensor(value: object) -> bool:
    return _is_a(value, "torch", "Tensor")


def _is_a(value: object, module_name: str, name: str) -> bool:
    """Whether it is of this class. A module that another thread still imports may not have the class yet, and then
    there is nothing of that class."""
    kind = getattr(sys.modules.get(module_name), name, None)
    return kind is not None and isinstance(value, kind)


def as_array(value: object, path: str) -> Any:
    """An array as it is; numbers, text and lists of them as an array of numpy's."""
    if is_tensor(value):
        return value
    if _is_a(value, "numpy", "ndarray"):
        return value
    if hasattr(value, "__array_namespace__") and not _is_a(value, "numpy", "generic"):
        return value
    np: Any = numpy()
    try:
        made = np.asarray(value)
    except Exception as error:
        error.add_note(f"in field {path!r}, which was to be an array")
        raise
    if made.dtype.hasobject:
        raise TypeError(
            f"field {path!r} cannot be a {type(value).__name__}: "
            "fields are arrays, numbers, text, None, or structures of them"
        )
    return made


def stack(arrays: Sequence[Any], axis: int) -> Any:
    if is_tensor(arrays[0]):
        return torch().stack(list(arrays), axis)
    return numpy().stack(arrays, axis)


def concatenate(arrays: Sequence[Any], axis: int) -> Any:
    if is_tensor(arrays[0]):
        return torch().cat(list(arrays), axis)
    return numpy().concatenate(arrays, axis)


def filled_like(array: Any, value: object) -> Any:
    if is_tensor(array):
        return torch().full_like(array, value)
    return numpy().full_like(array, value)


def reduced(array: Any, how: str, axis: int | None) -> Any:
    """`how` is one of sum, mean, max and min."""
    if is_tensor(array):
        method = getattr(array, {"max": "amax", "min": "amin"}.get(how, how))
        return method() if axis is None else method(axis)
    return getattr(array, how)(axis=axis)


def copied(array: Any) -> Any:
    return array.clone() if is_tensor(array) else array.copy()


def to_numpy(array: Any) -> Any:
    if is_tensor(array):
        return array.detach().cpu().numpy()
    return numpy().asarray(array)


def to_torch(array: Any, device: Any) -> Any:
    if not is_tensor(array):
        array = torch().as_tensor(array)
    return array if device is None else array.to(device)


def size(array: Any) -> int:
    return int(array.nbytes)


def same(first: Any, second: Any) -> bool:
    """Whether two arrays have the same kind, shape, type and values; values that are not a number are the same."""
    if is_tensor(first) != is_tensor(second) or first.dtype != second.dtype or first.shape != second.shape:
        return False
    equal = first == second
    if is_tensor(first):
        if first.is_floating_point() or first.is_complex():
            equal = equal | ((first != first) & (second != second))
    elif getattr(first.dtype, "kind", "") in "fcmM":
        equal = equal | ((first != first) & (second != second))
    return bool(equal.all())


def close(first: Any, second: Any, relative: float, absolute: float) -> bool:
    if is_tensor(first) and is_tensor(second):
        return bool(torch().allclose(first, second, relative, absolute, equal_nan=True))
    first, second = to_numpy(first), to_numpy(second)
    return first.shape == second.shape and bool(numpy().allclose(first, second, relative, absolute, equal_nan=True))


def memory_of_its_own(data: memoryview) -> bytearray | memoryview:
    """A copy that may be written to. numpy takes large ones from huge pages: a bytearray is several times slower."""
    if len(data) < 1 << 20:
        return bytearray(data)
    np: Any = numpy()
    memory: memoryview = np.frombuffer(data, np.uint8).copy().data
    return memory


def for_pickle(array: Any) -> Any:
    """What of an array is pickled, so that its memory is one buffer beside the pickle wherever that can be.

    numpy does so for arrays without gaps, hence a copy of those that have some. Tensors go as arrays.
    """
    if is_tensor(array):
        if array.device.type == "cpu" and array.layout is torch().strided and not array.requires_grad:
            return _Tensor(*tensor_memory(array))
        return array
    np: Any = numpy()
    # Subclasses have a state of their own, and objects have no memory to send.
    if type(array) is np.ndarray and not array.dtype.hasobject and not array.flags.forc:
        return np.ascontiguousarray(array)
    return array


class _Tensor:
    """A tensor on its way: its memory as an array, and the name of its type."""

    __slots__ = ("memory", "type")

    def __init__(self, memory: Any, type: str) -> None:
        self.memory = memory
        self.type = type

    def __reduce__(self) -> tuple[Any, ...]:
        return tensor_of, (self.memory, self.type)


# Types that numpy has no name for travel as whole numbers of the same width.
_CARRIERS = {"bfloat16": "int16", "float8_e4m3fn": "uint8", "float8_e5m2": "uint8"}


def tensor_memory(tensor: Any) -> tuple[Any, str]:
    """The values of a tensor as an array of numpy's without gaps, and the name of its type."""
    name = str(tensor.dtype).removeprefix("torch.")
    tensor = tensor.detach().cpu().contiguous()
    if name in _CARRIERS:
        tensor = tensor.view(getattr(torch(), _CARRIERS[name]))
    return tensor.numpy(), name


def tensor_of(memory: Any, name: str) -> Any:
    """The tensor of what `tensor_memory` gave. It has the array's memory, unless that must not be written to."""
    if not memory.flags.writeable:
        memory = memory.copy()
    tensor = torch().from_numpy(memory)
    return tensor.view(getattr(torch(), name)) if name in _CARRIERS else tensor
