"""The fields that a subclass declares.

Owns: reading annotations of a class body, and which class a nested field has. A subclass that annotates nothing, and
has no base that does, takes any fields, as `NamedArray` itself.
"""

from __future__ import annotations

import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any


class Declaration:
    """Names, defaults and annotations of the fields of a class, those of its bases first."""

    def __init__(self) -> None:
        self.annotations: dict[str, Any] = {}
        self.defaults: dict[str, Any] = {}
        self.modules: dict[str, str] = {}
        self._kinds: dict[str, type] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # A class that travels to another process by value takes along those that its annotations name: there may be no
        # module in which to look them up.
        self._resolved()
        return vars(self)

    def complete(self, kind: type, fields: dict[str, Any]) -> dict[str, Any]:
        """These fields with the defaults of those that are missing, in the order of the declaration."""
        unknown = fields.keys() - self.annotations.keys()
        missing = self.annotations.keys() - fields.keys() - self.defaults.keys()
        if unknown or missing:
            parts = [f"{what} {', '.join(sorted(names))}" for what, names in _parts(unknown, missing) if names]
            raise TypeError(f"{kind.__name__} has the fields {', '.join(self.annotations)}: {' and '.join(parts)}")
        return {name: fields[name] if name in fields else self.defaults[name] for name in self.annotations}

    def kind_of(self, name: str, base: type) -> type:
        """The class of a nested structure in this field: as declared, or the base."""
        return self._resolved().get(name, base)

    def _resolved(self) -> dict[str, type]:
        """The classes of structures that annotations name, by field."""
        if self._kinds is None:
            found = {name: _structure_in(self._hint(name)) for name in self.annotations}
            self._kinds = {name: kind for name, kind in found.items() if kind is not None}
        return self._kinds

    def _hint(self, name: str) -> Any:
        annotation = self.annotations[name]
        if not isinstance(annotation, str):
            return annotation
        try:
            return eval(annotation, vars(sys.modules[self.modules[name]]))
        except Exception:
            return None  # a name that only a type checker knows, or one of a function's own: any structure will do


def _parts(unknown: set[str], missing: set[str]) -> tuple[tuple[str, set[str]], ...]:
    return ("it does not have", unknown), ("it lacks", missing)


def read(kind: type, base: type) -> Declaration | None:
    """What a new class declares, with what its bases do. Takes the defaults out of the class, where they would stand
    before the fields."""
    found = Declaration()
    for parent in reversed(kind.__mro__[1:]):
        declared = parent.__dict__.get("_declared")
        if declared is not None:
            found.annotations |= declared.annotations
            found.defaults |= declared.defaults
            found.modules |= declared.modules
    for name, annotation in _own_annotations(kind).items():
        if _is_class_variable(annotation):
            continue
        if name.startswith("_") or hasattr(base, name):
            raise TypeError(
                f"{kind.__name__} cannot have the field {name!r}: "
                + ("names of fields begin with a letter" if name.startswith("_") else "NamedArray has it already")
            )
        found.annotations[name] = annotation
        found.modules[name] = kind.__module__
        if name in kind.__dict__:
            found.defaults[name] = kind.__dict__[name]
            delattr(kind, name)
    return found if found.annotations else None


def _own_annotations(kind: type) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        return annotationlib.get_annotations(kind, format=annotationlib.Format.FORWARDREF)
    return dict(vars(kind).get("__annotations__", {}))


def _is_class_variable(annotation: Any) -> bool:
    from typing import ClassVar, get_origin

    if isinstance(annotation, str):
        return annotation.startswith(("ClassVar", "typing.ClassVar", "t.ClassVar"))
    return annotation is ClassVar or get_origin(annotation) is ClassVar


def _structure_in(hint: Any) -> type | None:
    from typing import get_args

    for part in (hint, *get_args(hint)):
        if isinstance(part, type) and "_declared" in vars(part):
            return part
    return None
