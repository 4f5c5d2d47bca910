"""Decorated classes: the same class object, whose `__new__` gives a Node while tracing.

Python skips `__init__` when `__new__` gives something that is not an instance, so neither the metaclass nor
`__init__` is touched: isinstance, subclassing, pickling, `torch.save`, `torch.compile` and
`save_hyperparameters` see the plain class.
"""

import dis
import functools
import sys
import types
from typing import Any

from tl_integrations.language import tracing
from tl_integrations.language.keeping import keep
from tl_integrations.language.remembering import snapshot
from tl_integrations.language.targets import Target

_COPIERS = frozenset({"copy", "copyreg", "pickle", "_pickle", "dill", "cloudpickle"})

_ABSTRACT = 1 << 20
"""CPython's type flag of a class with abstract methods."""


def instrument(cls: type, target: Target, *, record: bool) -> type:
    """Install the recording `__new__` on `cls` and give `cls` back."""
    original = cls.__dict__.get("__new__")
    original = getattr(original, "__func__", original)
    inherited: Any = cls.__new__
    plainly_made = original is None and inherited is object.__new__

    def __new__(c: Any, /, *args: Any, **kwargs: Any) -> Any:
        own = target
        if c is not cls:
            if getattr(c.__dict__.get("__new__"), "__func__", None) is not __new__:
                return _make(c, cls, __new__, original, args, kwargs)
            own = _own_target(c)
        if own.initialiser is not c.__init__:
            own.make_plan()
        called = args or kwargs or _is_call(own)
        if tracing.active and called and not c.__flags__ & _ABSTRACT:
            tape = tracing.current()
            if tape is not None:
                return tape.record(own, args, kwargs)
        if not record or not called:
            return _make(c, cls, __new__, original, args, kwargs)
        plain_args, plain_kwargs = snapshot(args, kwargs)
        if plainly_made and c is cls and own.initialiser is not object.__init__:
            made: Any = object.__new__(c)
        else:
            made = _make(c, cls, __new__, original, args, kwargs)
        if type(made) is c:
            keep(made, own, plain_args, plain_kwargs)
        return made

    _dress(__new__, cls, original)
    cls.__new__ = staticmethod(__new__)  # type: ignore[method-assign]
    cls._tl_target = target  # type: ignore[attr-defined]
    return cls


def _dress(new: Any, cls: type, original: Any) -> None:
    """Make `inspect.signature(cls)` and help() tell what they told before."""
    if original is not None:
        functools.update_wrapper(new, original)
    else:
        new.__qualname__ = f"{cls.__qualname__}.__new__"
        new.__module__ = cls.__module__
        if isinstance(cls.__init__, types.FunctionType):  # type: ignore[misc]
            new.__wrapped__ = cls.__init__  # type: ignore[misc]
    new._tl_injected = True
    new._tl_original = original


def _own_target(c: type) -> Target:
    """The target of `c` itself; `@dataclass(slots=True)` above the decorator makes a new class with the old
    marker."""
    target: Target = c.__dict__["_tl_target"]
    if target.call is not c:
        renewed = Target(c, target.name)
        renewed.defaults = target.defaults
        c._tl_target = target = renewed  # type: ignore[attr-defined]
    return target


def _make(c: type, cls: type, new: Any, original: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Make the real object as the class would without us."""
    if original is not None:
        return original(c, *args, **kwargs)
    holder: Any = _holder(c, cls, new)
    following = super(holder, c).__new__
    if following is not object.__new__:
        return following(c, *args, **kwargs)
    if (args or kwargs) and c.__init__ is object.__init__:  # type: ignore[misc]
        raise TypeError(f"{c.__name__}() takes no arguments")
    return object.__new__(c)


def _holder(c: type, cls: type, new: Any) -> type:
    if cls in c.__mro__:
        return cls
    return next(base for base in c.__mro__ if getattr(base.__dict__.get("__new__"), "__func__", None) is new)


def _is_call(target: Target) -> bool:
    """Whether this is `Cls()` and not a copy or an unpickling, which call `__new__` alone and fill the object
    later.

    Those pass no arguments. A call without arguments of a class that needs some is Python's to refuse.
    """
    caller = sys._getframe(2)
    if caller.f_globals.get("__name__") in _COPIERS or target.plan.required:
        return False
    return _is_bare_call(caller)


def _is_bare_call(caller: types.FrameType) -> bool:
    """Whether the calling instruction is a call without arguments, not `pickle.loads(text)` or
    `unpickler.load()`."""
    code, position = caller.f_code, caller.f_lasti
    name = dis.opname[code.co_code[position]]
    if name == "CALL_FUNCTION_EX":
        return True
    return name in ("CALL", "PRECALL") and code.co_code[position + 1] == 0 and "load" not in code.co_names
