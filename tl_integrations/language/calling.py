"""Explicit nodes: `call`, `partial`, and recording proxies for code that is not yours."""

import functools
import types
from collections.abc import Callable
from typing import Any

from tl_integrations.errors import TraceError
from tl_integrations.language import remembering, tracing
from tl_integrations.language.binding import bind
from tl_integrations.language.encoding import Encoder
from tl_integrations.language.lowering import lower, to_config
from tl_integrations.language.nodes import call_spot
from tl_integrations.language.recording import encode_call
from tl_integrations.language.targets import Target, target_of


def call(target: Callable[..., Any]) -> Callable[..., Any]:
    """`L.call(T)(*args, **kwargs)`: the node of that call; `T` never runs.

    Outside a trace a DictConfig, inside one the recorded call. Positional arguments get their parameters'
    names; what has none goes to `_args_`.

    Args:
        target: A class or function, decorated or not; of a `functools.partial` its function and arguments.
    Raises: TypeError as the call itself would; TraceError for what a config cannot express.
    """
    return _Writer(target, partial=False)


def partial(target: Callable[..., Any]) -> Callable[..., Any]:
    """`L.partial(T)(*args, **kwargs)`: a node that builds `functools.partial(T, *args, **kwargs)`.

    Args:
        target: A class or function, decorated or not.
    Raises: TypeError and TraceError as `call`; arguments that are still missing are no error.
    """
    return _Writer(target, partial=True)


class _Writer:
    """What `call` and `partial` give: call it with the arguments of the target."""

    __slots__ = ("args", "kwargs", "partial", "target")

    def __init__(self, target: Any, *, partial: bool) -> None:
        self.args: tuple[Any, ...] = ()
        self.kwargs: dict[str, Any] = {}
        if isinstance(target, functools.partial):
            target, self.args, self.kwargs = target.func, target.args, dict(target.keywords)
        if isinstance(target, str):
            raise TraceError(f"L.call() takes the class or function itself, not its name {target!r}.")
        self.target = target_of(target)
        self.partial = partial

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        args, kwargs = self.args + args, {**self.kwargs, **kwargs}
        tape = tracing.current() if tracing.active else None
        if tape is not None:
            return tape.record(self.target, args, kwargs, True, self.partial)
        plan = self.target.plan
        positional, named = bind(plan, args, kwargs, star=True, partial=self.partial)
        recorded = encode_call(self.target, plan, positional, named, Encoder(), self.partial)
        recorded.spot = call_spot(1)
        return to_config(lower(recorded))


class Wrapped:
    """A recording stand-in for a foreign callable: records inside a trace, calls the real one outside. Not a
    type."""

    def __init__(self, target: Target, *, record: bool = True) -> None:
        functools.update_wrapper(self, target.call, updated=())
        self._tl_target = target
        self._tl_record = record

    def __call__(self, /, *args: Any, **kwargs: Any) -> Any:
        target = self._tl_target
        if tracing.active:
            tape = tracing.current()
            if tape is not None:
                return tape.record(target, args, kwargs, True)
        if not self._tl_record:
            return target.call(*args, **kwargs)
        return remembering.build(target, target.call, args, kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tl_target.call, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return wrap, (self._tl_target.call,)

    def __repr__(self) -> str:
        return f"L.wrap({self._tl_target.label})"


class WrappedModule:
    """A module whose callables are recorded: `nn = L.wrap(torch.nn)`, then `nn.Sequential(a, b)`."""

    def __init__(self, module: types.ModuleType) -> None:
        self._tl_module = module

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._tl_module, name)
        if isinstance(found, types.ModuleType) or callable(found):
            return wrap(found)
        return found

    def __dir__(self) -> list[str]:
        return dir(self._tl_module)

    def __repr__(self) -> str:
        return f"L.wrap({self._tl_module.__name__})"


def wrap(foreign: Any) -> Any:
    """Make code that is not yours recordable without changing it.

    Args:
        foreign: A class, a function, or a module such as `torch.nn`, whose callables are then wrapped when
            asked for.
    Returns: A callable stand-in (not a type: no subclassing, no isinstance), or a namespace.
    Raises: TraceError for a `functools.partial`, or what has no import path.
    """
    if isinstance(foreign, Wrapped | WrappedModule):
        return foreign
    if isinstance(foreign, types.ModuleType):
        return WrappedModule(foreign)
    if isinstance(foreign, functools.partial):
        raise TraceError(
            f"{foreign!r} has no name of its own. Wrap {foreign.func!r} and pass the arguments there."
        )
    return Wrapped(target_of(foreign))
