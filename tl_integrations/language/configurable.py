"""`@configurable`: functions get a recording wrapper, classes stay the very same class with another
`__new__`.

The traced type is told once here: a decorated callable keeps its declared types, although inside a trace it
gives a Node.
"""

import functools
import sys
import types
from collections.abc import Callable
from typing import Any, TypeVar, overload

from tl_integrations.errors import TraceError
from tl_integrations.language import keeping, remembering, tracing
from tl_integrations.language.calling import Wrapped
from tl_integrations.language.classes import instrument
from tl_integrations.language.defaults import MODES, DefaultsMode
from tl_integrations.language.paths import lookup
from tl_integrations.language.targets import Target, is_decorated

T = TypeVar("T", bound=Callable[..., Any])


@overload
def configurable(fn_or_class: T, /) -> T: ...
@overload
def configurable(
    fn_or_class: None = None,
    /,
    *,
    name: str | None = None,
    defaults: DefaultsMode | None = None,
    record: bool = True,
) -> Callable[[T], T]: ...
def configurable(
    fn_or_class: Any = None,
    /,
    *,
    name: str | None = None,
    defaults: DefaultsMode | None = None,
    record: bool = True,
) -> Any:
    """Make a function or class recordable: outside a trace it works as before, inside one its calls become
    config nodes.

    Args:
        fn_or_class: A function, class, classmethod or staticmethod of yours. A foreign one (defined in
            another module) is not changed: you get a recording stand-in, as from `wrap`.
        name: The import path to write, where a public one is nicer than the defining one.
        defaults: How defaults of this target are written, whatever the trace says.
        record: Whether objects remember how they were built, for `config_of`.
    Raises: TraceError (a TypeError) for a lambda, a partial or something that cannot be called.
    """
    options = {"name": name, "defaults": defaults, "record": record and keeping.enabled}
    if defaults is not None and defaults not in MODES:
        raise TraceError(f"defaults={defaults!r} is none of {', '.join(map(repr, MODES))}.")
    caller = sys._getframe(1).f_globals.get("__name__")
    if fn_or_class is None:
        return lambda found: _decorate(found, caller, **options)
    return _decorate(fn_or_class, caller, **options)


def _decorate(found: Any, caller: Any, **options: Any) -> Any:
    if isinstance(found, classmethod | staticmethod):
        return type(found)(_decorate(found.__func__, caller, **options))
    if isinstance(found, functools.partial):
        raise TraceError(
            f"{found!r} has no import path. Decorate {found.func!r}, or write L.partial(...)(...)."
        )
    if not callable(found):
        raise TraceError(f"L.configurable() takes a function or a class, not {found!r}.")
    if is_decorated(found):
        return found
    if getattr(found, "__name__", "") == "<lambda>":
        raise TraceError(
            "A <lambda> has no import path, so no config can name it. Write a function at module level."
        )
    record = options.pop("record")
    target = Target(found, options["name"])
    target.defaults = options["defaults"]
    if _is_foreign(found, caller):
        return Wrapped(target, record=record)
    if isinstance(found, type):
        return instrument(found, target, record=record)
    return _wrapper(found, target, record=record)


def _is_foreign(found: Any, caller: Any) -> bool:
    module, qualname = getattr(found, "__module__", None), getattr(found, "__qualname__", None)
    if not isinstance(found, type | types.FunctionType):
        return True
    return module != caller and lookup(f"{module}.{qualname}") is found


def _wrapper(function: Callable[..., Any], target: Target, *, record: bool) -> Any:
    """The recording form of a function. `tracing.active` is looked at first: see there."""

    if record:

        @functools.wraps(function)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if tracing.active:
                tape = tracing.current()
                if tape is not None:
                    return tape.record(*_method(own, target, args), kwargs)
            return remembering.build(target, function, args, kwargs)

        own = recorded
    else:

        @functools.wraps(function)
        def unrecorded(*args: Any, **kwargs: Any) -> Any:
            if tracing.active:
                tape = tracing.current()
                if tape is not None:
                    return tape.record(*_method(own, target, args), kwargs)
            return function(*args, **kwargs)

        own = unrecorded
    target.call = own
    own._tl_target = target  # type: ignore[attr-defined]
    return own


def _method(wrapper: Any, target: Target, args: tuple[Any, ...]) -> tuple[Target, tuple[Any, ...]]:
    """The target and arguments of a call: a classmethod's first argument is the class whose method it is."""
    qualname = wrapper.__qualname__
    if "." not in qualname or "<locals>" in qualname:
        return target, args
    owner = lookup(f"{wrapper.__module__}.{qualname.rpartition('.')[0]}")
    holder = owner.__dict__.get(wrapper.__name__) if isinstance(owner, type) else None
    if isinstance(holder, classmethod) and args and isinstance(args[0], type):
        bound = getattr(args[0], wrapper.__name__)
        return Target(bound), args[1:]
    if holder is wrapper:
        raise TraceError(
            f"{qualname} is a method, and its self is a live object that no config can hold. Decorate the "
            "class, or make it a staticmethod or classmethod."
        )
    return target, args
