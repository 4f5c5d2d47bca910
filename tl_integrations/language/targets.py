"""What a call of a given callable looks like in a config: its import path and its signature."""

import inspect
import types
import weakref
from collections.abc import Callable
from typing import Any

from tl_integrations.errors import TraceError
from tl_integrations.language.binding import Plan, make_plan
from tl_integrations.language.denials import denial
from tl_integrations.language.paths import import_path, load, lookup, stands_for

_UNKNOWN = (ValueError, TypeError, NameError)

trusted: set[str] = set()
"""Import paths that this process recorded or decorated itself; a config may name them."""


class Target:
    """A callable as configs see it; path and plan are worked out on first use, since decorators run too
    early.

    Those are slots that `__getattr__` fills when they are still empty: every recorded call reads them, and
    properties take four times as long.
    """

    __slots__ = (
        "__weakref__",
        "call",
        "defaults",
        "initialiser",
        "label",
        "live_path",
        "name",
        "path",
        "plan",
    )

    path: str
    """The `_target_` text. Raises TraceError when no other process could import it, or none may."""
    live_path: str | None
    """The same, or None for a target that has none; asked once, since local classes are built often."""
    plan: Plan
    """How its arguments bind."""

    def __init__(self, call: Callable[..., Any], name: str | None = None) -> None:
        self.call: Callable[..., Any] = call
        self.name: str | None = name
        self.label: str = str(
            getattr(call, "__qualname__", None) or getattr(call, "__name__", None) or repr(call)
        )
        self.initialiser: Any = None
        """The `__init__` that the plan of a class was made of."""
        self.defaults: str | None = None

    def __getattr__(self, name: str) -> Any:
        fill = _LATE.get(name)
        if fill is None:
            raise AttributeError(name)
        fill(self)
        return getattr(self, name)

    def make_plan(self) -> None:
        """Work out the plan, again where a class got another `__init__`."""
        if isinstance(self.call, type):
            self.initialiser = self.call.__init__  # type: ignore[misc]
        self.plan = _plan_of(self.call, self.label)

    def find_path(self) -> None:
        """Work out the path, and trust it. Raises TraceError."""
        self.path = self._path()

    def find_live_path(self) -> None:
        """Work out the path of a target that need not have one."""
        try:
            self.live_path = self.path
        except TraceError:
            self.live_path = None

    def _path(self) -> str:
        path = self.name or import_path(self.call)
        if self.name is not None and not stands_for(load(self.name), self.call):
            raise TraceError(
                f"name={self.name!r} does not lead to {self.call!r}. Give the path that imports it."
            )
        refuse_denied(path, self.call)
        trusted.add(path)
        return path


_LATE: dict[str, Callable[[Target], None]] = {
    "path": Target.find_path,
    "live_path": Target.find_live_path,
    "plan": Target.make_plan,
}


def is_decorated(found: Any) -> bool:
    """Whether a call of it is recorded: marked itself, since an inherited marker means nothing."""
    return "_tl_target" in (found.__dict__ if isinstance(found, type) else getattr(found, "__dict__", {}))


def refuse_denied(path: str, found: Any) -> None:
    """Raise TraceError for a name that no config may hold, by its spelling or by what it really is."""
    for name in (path, real_name(found)):
        reason = denial(name) if name else None
        if reason:
            raise TraceError(
                f"{path!r} cannot be part of a config: {reason}. Write a small function of your own around "
                f"it."
            )


def real_name(found: Any) -> str | None:
    """`module.qualname` as the object itself states it, whatever alias led there."""
    if isinstance(found, types.ModuleType):
        return found.__name__
    module, qualname = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    owner = getattr(found, "__self__", None)
    if module is None and isinstance(owner, types.ModuleType):
        module = owner.__name__
    if module is None and owner is not None and qualname:
        module = (owner if isinstance(owner, type) else type(owner)).__module__
    if module is None and hasattr(found, "__objclass__"):
        module = found.__objclass__.__module__
    return f"{module}.{qualname}" if isinstance(module, str) and isinstance(qualname, str) else None


def _plan_of(call: Any, label: str) -> Plan:
    if isinstance(call, type):
        source, name = _initialiser(call)
        if isinstance(source, inspect.Signature):
            return make_plan(label, source)
        if source is None:
            return make_plan(label, _signature(call))
        return make_plan(f"{label}.{name}", _without_first(_signature(source)), bound=1)
    return make_plan(label, _signature(call))


def _initialiser(cls: type) -> tuple[Any, str]:
    """The function that takes the arguments of `cls(...)`: the first user-defined one along its bases.

    A bare `inspect.signature(cls)` would follow the injected `__new__` of a decorated base.
    """
    if isinstance(getattr(cls, "__signature__", None), inspect.Signature):
        return cls.__signature__, ""  # type: ignore[attr-defined]
    for base in cls.__mro__[:-1]:
        own = base.__dict__
        if isinstance(own.get("__init__"), types.FunctionType):
            return own["__init__"], "__init__"
        new = own.get("__new__")
        new = getattr(new, "__func__", new)
        new = getattr(new, "_tl_original", new)
        if isinstance(new, types.FunctionType) and not hasattr(new, "_tl_injected"):
            return new, "__new__"
        if "__init__" in own or (own.get("__new__") is not None and not hasattr(new, "_tl_injected")):
            return None, ""
    return inspect.Signature(), ""


def _signature(call: Any) -> inspect.Signature | None:
    try:
        return inspect.signature(call)
    except _UNKNOWN:
        return None


def _without_first(signature: inspect.Signature | None) -> inspect.Signature | None:
    if signature is None:
        return None
    parameters = list(signature.parameters.values())
    star = bool(parameters) and parameters[0].kind is inspect.Parameter.VAR_POSITIONAL
    return signature if star else signature.replace(parameters=parameters[1:])


_targets: "weakref.WeakKeyDictionary[Any, Target]" = weakref.WeakKeyDictionary()


def target_of(call: Any) -> Target:
    """The target of any callable: a decorated one's own, else one made on first sight and kept while it
    lives."""
    if not isinstance(call, type):
        own = getattr(call, "_tl_target", None)
        return own if isinstance(own, Target) else _known(call)
    target = call.__dict__.get("_tl_target") or _known(call)
    if target.initialiser is not call.__init__:  # type: ignore[misc]
        target.make_plan()
    return target


def _known(call: Any) -> Target:
    if not callable(call):
        raise TraceError(f"A target must be callable, not {call!r}. Pass the class or function itself.")
    try:
        found = _targets.get(call)
    except TypeError:
        return Target(call)
    if found is None:
        found = Target(call)
        if "<" in found.label:
            return found
        try:
            _targets[call] = found
        except TypeError:
            return found
    return found


def named_target(path: str) -> Target:
    """The target that a config names, without importing anything; its plan is unknown when it is not
    loaded."""
    found = lookup(path)
    known = target_of(found) if callable(found) else None
    if known is not None and known.live_path == path:
        return known
    target = Target(found if callable(found) else _not_loaded)
    target.path = path
    return target


def _not_loaded(*args: Any, **kwargs: Any) -> None:
    """Stands for a callable whose module is not imported."""
