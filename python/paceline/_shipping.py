"""Functions as executors and pools hand them to their slots.

Owns: which functions are sent once and which with every call, and the handles of the former.

* SH-1: no function is kept alive by having been submitted.
* SH-2: a function that may change inside, such as a bound method or a partial, is pickled with every call, so that each
  call has it as it was when it was submitted.
"""

from __future__ import annotations

import sys
import weakref
from types import BuiltinFunctionType, FunctionType, ModuleType

from paceline._functions import name_of, pack
from paceline._slot import pools
from paceline._slot.rebuild import plain

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from paceline._native import Function, Pool

    Known = tuple[weakref.ref[Any], Callable[[], bool], Function]

OPTIONS: dict[str, Any] = {"wait": None, "retries": 0, "retry_on": (), "timeout": None, "priority": 0}


class Shipper:
    """The functions that one pool knows."""

    def __init__(self, native: Pool, before: Callable[[], object]) -> None:
        self.native = native
        self.known: dict[int, Known] = {}
        self._before = before
        self._calling: dict[tuple[Any, str], Function] = {}
        self._chunked: dict[tuple[int, bool], Known] = {}

    def handle(self, function: Any) -> tuple[Function, tuple[Any, ...]]:
        """How to call a function: the handle, and what comes before its arguments."""
        function = plain(function)
        known = self.known.get(id(function))
        if known is not None and known[0]() is function and known[1]():
            return known[2], ()
        if not is_fixed(function):
            return self._call(pools.call, name_of(function)), (function,)
        return self._ship(self.known, id(function), function, function), ()

    def chunks(self, function: Any, star: bool) -> tuple[Function, tuple[Any, ...]]:
        """How to call a function with each item of a chunk."""
        function = plain(function)
        known = self._chunked.get((id(function), star))
        if known is not None and known[0]() is function and known[1]():
            return known[2], ()
        each = pools.each_star if star else pools.each
        if not is_fixed(function):
            return self._call(each, name_of(function)), (function,)
        from functools import partial

        return self._ship(self._chunked, (id(function), star), function, partial(each, function)), ()

    def forget(self) -> None:
        """Nothing more will be submitted."""
        self.known.clear()
        self._chunked.clear()
        self._calling.clear()

    def _ship(self, known: dict[Any, Known], key: Any, function: Any, shipped: Any) -> Function:
        payload, watch = pack(shipped)
        self._before()
        handle = self.native.function(payload, name_of(function), **OPTIONS)
        known[key] = (weakref.ref(function, lambda _: known.pop(key, None)), watch.unchanged, handle)
        return handle

    def _call(self, how: Callable[..., Any], name: str) -> Function:
        """A handle for functions that travel with their calls; by name, so that errors can name them."""
        handle = self._calling.get((how, name))
        if handle is None:
            self._before()
            handle = self._calling[how, name] = self.native.function(pack(how)[0], name, **OPTIONS)
        return handle


def prepare(native: Pool, first: tuple[Callable[..., object] | None, tuple[Any, ...]], plainly: bool) -> None:
    """Have every slot begin with this initializer and its arguments."""
    key = None
    if "multiprocessing.process" in sys.modules:
        # Another thread may still import it: this waits until it has.
        from multiprocessing.process import current_process

        key = bytes(current_process().authkey)
    native.prepare(pack(pools.begin)[0], "begin", (plainly, key), {})
    if first[0] is not None:
        # By itself, because its arguments may need the key to be read.
        native.prepare(pack(pools.initialize)[0], name_of(first[0]), first, {})


def is_fixed(function: object) -> bool:
    """Whether a function is the same at every call, as long as the names it uses are bound to the same."""
    kind = type(function)
    if kind is BuiltinFunctionType:
        return isinstance(function.__self__, ModuleType)  # type: ignore[attr-defined]
    return kind is FunctionType or kind is type
