"""The decorator, and the two kinds of proxies that it makes. What goes on between a proxy and its object is in `_link`.

* PD-1: inside a slot nothing is remote: a decorated class makes plain objects there.
* PD-2: all of a proxy's own is named `_xparl...`; every other name is the object's.
"""

from __future__ import annotations

import inspect

from paceline import _slot
from paceline.compat.parl._link import FutureObject, Link
from paceline.compat.parl.utils import logger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

__all__ = ["remote_class"]

_OPTIONS: dict[str, Any] = {"max_memory": None, "wait": True, "n_gpu": 0}
_RESERVED = "Name starting with `_xparl` is the reserved name in xparl, please don't use the name `{}`."


def remote_class(*args: Any, **kwargs: Any) -> Any:
    """Make the objects of a class live on the cluster.

    `max_memory` is how many MB an object may take beyond what an empty process has, `n_gpu` how many GPUs it has to
    itself. With `wait=False` nothing is waited for: calls return a `FutureObject`. `_original` of what it makes is the
    plain class.
    """
    for name in kwargs:
        assert name in _OPTIONS, (
            f"Argument `{name}` is not supported in the `@parl.remote_class`, supported arguments: {list(_OPTIONS)}"
        )
    options = {**_OPTIONS, **kwargs}
    if len(args) == 1 and not kwargs and callable(args[0]):
        return _decorated(args[0], options)
    return lambda kind: _decorated(kind, options)


def _decorated(kind: Any, options: dict[str, Any]) -> Any:
    assert inspect.isclass(kind), "Only class can be decorated by `parl.remote_class`."
    if _slot.number is not None:
        logger.info("Note: this object will be runnning as a local object")
        return kind
    base = _Proxy if options["wait"] else _FutureProxy
    names = {"_original": kind, "_xparl_options": options, "__doc__": kind.__doc__, "__module__": kind.__module__}
    return type(kind.__name__, (base,), {**names, "__qualname__": kind.__qualname__})


class _Base:
    """How an object on the cluster begins."""

    _original: type
    _xparl_options: dict[str, Any]
    _xparl_link: Link
    _xparl_begins: str  # the method of the link that waits for the object, or does not

    def __new__(cls, *args: Any, **kwargs: Any) -> Any:
        return object.__new__(cls) if _slot.number is None else cls._original(*args, **kwargs)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        for name in kwargs:
            _check(name)
        object.__setattr__(self, "_xparl_link", Link(self._original, self._xparl_options, args, kwargs))
        getattr(self._xparl_link, self._xparl_begins)()


class _Proxy(_Base):
    """Stands for an object on the cluster. Calls, and reading and setting attributes, wait for their outcome."""

    _xparl_begins = "wait_for_object"

    def __getattr__(self, name: str) -> Any:
        link = _link_of(self, name)
        if link.has(name):
            return link.answer(name, link.ask("read", name))

        def method(*args: Any, **kwargs: Any) -> Any:
            return link.answer(name, link.ask("call", name, args, kwargs))

        return method

    def __setattr__(self, name: str, value: Any) -> None:
        _check(name)
        link = _link_of(self, name)
        link.answer(name, link.ask("write", name, value))


class _FutureProxy(_Base):
    """Stands for an object on the cluster. Only reading an attribute waits."""

    _xparl_begins = "watch_object"

    def destroy(self) -> None:
        """End the object, and leave its slot."""
        self._xparl_link.end()

    def __getattr__(self, name: str) -> Any:
        link = _link_of(self, name)
        link.raise_failure()
        # What the class says is a method is called without waiting for calls before it; only for other names is it
        # needed to know which attributes the object has by then.
        if not callable(getattr(self._original, name, None)):
            link.catch_up(name)
        if link.has(name):
            return FutureObject(link, name, link.ask("read", name)).get()

        def method(*args: Any, **kwargs: Any) -> FutureObject:
            link.raise_failure()
            return FutureObject(link, name, link.ask("call", name, args, kwargs))

        return method

    def __setattr__(self, name: str, value: Any) -> None:
        _check(name)
        link = _link_of(self, name)
        link.raise_failure()
        FutureObject(link, name, link.ask("write", name, value))


def _link_of(proxy: Any, name: str) -> Link:
    """The link. Python's own protocols (copying, pickling) look for names that are never remote, also before there is a
    link."""
    link = proxy.__dict__.get("_xparl_link")
    if not isinstance(link, Link) or (name.startswith("__") and name.endswith("__")):
        raise AttributeError(name)
    return link


def _check(name: str) -> None:
    assert not name.startswith("_xparl"), _RESERVED.format(name)
