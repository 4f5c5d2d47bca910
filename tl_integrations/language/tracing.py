"""Running a thunk with recording on: the one ContextVar, and what becomes of the thunk's result.

Tracing is seen by the code that the thunk runs, in its thread and in asyncio tasks started from it. A new
thread starts without it. Only trusted, ordinary Python runs here; a builder's body never does.
"""

import functools
import inspect
import threading
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, Literal, overload

from tl_integrations.errors import TraceError, TraceLeakError
from tl_integrations.language import purity
from tl_integrations.language.defaults import MODES, DefaultsMode
from tl_integrations.language.encoding import Encoder
from tl_integrations.language.lowering import Lowered, Sharing, lower, to_config
from tl_integrations.language.nodes import Node, place
from tl_integrations.language.pinning import pinned
from tl_integrations.language.recording import Tape
from tl_integrations.language.scanning import is_config_object

if TYPE_CHECKING:
    from omegaconf import DictConfig


class OrphanNodeWarning(UserWarning):
    """A recorded call is not part of the config that the trace gave."""


_TRACING: ContextVar[Tape | None] = ContextVar("tl_integrations_tracing", default=None)
_lock = threading.Lock()
active: int = 0
"""How many traces are open in the process. Decorated callables look here first: reading a ContextVar on every
call would break `torch.compile(fullgraph=True)` and costs more."""


def current() -> Tape | None:
    """The tape that calls are recorded on here and now."""
    tape = _TRACING.get()
    return None if tape is None or tape.closed else tape


def is_tracing() -> bool:
    """Whether configurable calls are being recorded instead of made."""
    return active > 0 and current() is not None


@contextmanager
def untraced() -> Iterator[None]:
    """Run the body for real inside a trace: configurable calls in it build objects."""
    token = _TRACING.set(None)
    try:
        yield
    finally:
        _TRACING.reset(token)


@contextmanager
def _recording(tape: Tape) -> Iterator[None]:
    global active
    with _lock:
        active += 1
    token = _TRACING.set(tape)
    try:
        yield
    finally:
        _TRACING.reset(token)
        tape.closed = True
        with _lock:
            active -= 1


@overload
def trace(
    thunk: Callable[[], Any],
    *,
    strict: Literal[True] = ...,
    as_dict: Literal[False] = ...,
    defaults: DefaultsMode = ...,
    sharing: Sharing = ...,
    check_pure: bool = ...,
) -> "DictConfig": ...
@overload
def trace(
    thunk: Callable[[], Any],
    *,
    strict: Literal[True] = ...,
    as_dict: Literal[True],
    defaults: DefaultsMode = ...,
    sharing: Sharing = ...,
    check_pure: bool = ...,
) -> dict[str, Any]: ...
@overload
def trace(
    thunk: Callable[[], Any],
    *,
    strict: bool,
    as_dict: bool = ...,
    defaults: DefaultsMode = ...,
    sharing: Sharing = ...,
    check_pure: bool = ...,
) -> Any: ...
def trace(
    thunk: Callable[[], Any],
    *,
    strict: bool = True,
    as_dict: bool = False,
    defaults: DefaultsMode = "omit",
    sharing: Sharing = "reference",
    check_pure: bool = False,
) -> Any:
    """Run `thunk` once with recording on and give the config of what it would have built.

    Args:
        thunk: A function without arguments, usually `lambda: build(...)`.
        strict: Whether the result must be a config; with False anything else the thunk returns is given back.
        as_dict: Give a plain dict (or list) instead of a DictConfig, which takes most of the time.
        defaults: `"omit"`, `"include"` or `"pin"` the default values of signatures.
        sharing: What becomes of an object that is used twice: `"reference"` (an interpolation),
            `"duplicate"`, `"refuse"`.
        check_pure: Run the thunk twice and raise when the results differ or a random generator was used.
    Returns: A DictConfig; with `strict=False` also a ListConfig or the executed value.
    Raises: TraceError (a TypeError) for what a config cannot express; whatever the thunk raises, with a note.
    """
    _check_options(defaults, sharing)
    _check_thunk(thunk)
    lowered = _run(thunk, strict, defaults, sharing)
    if check_pure:
        purity.check(lowered, lambda: _run(thunk, strict, defaults, sharing))
    if not isinstance(lowered, Lowered):
        return lowered
    return lowered.content if as_dict else to_config(lowered)


def _check_options(defaults: str, sharing: str) -> None:
    if defaults not in MODES:
        raise TraceError(f"defaults={defaults!r} is none of {', '.join(map(repr, MODES))}.")
    if sharing not in ("reference", "duplicate", "refuse"):
        raise TraceError(f"sharing={sharing!r} is none of 'reference', 'duplicate', 'refuse'.")


def _check_thunk(thunk: Any) -> None:
    kinds = (types.FunctionType, types.MethodType, types.BuiltinFunctionType, functools.partial, type)
    module = any(base.__module__ == "torch.nn.modules.module" for base in type(thunk).__mro__)
    if not callable(thunk) or module:
        raise TraceError(
            f"L.trace() takes a function without arguments and was given {_shown(thunk)}. If this is the "
            "result of a call, the lambda is missing: L.trace(lambda: build(...))."
        )
    if isinstance(thunk, kinds):
        try:
            inspect.signature(thunk).bind()
        except ValueError:
            return
        except TypeError as error:
            raise TraceError(
                f"L.trace() calls its argument without arguments, and {_shown(thunk)} is {error}. "
                "Wrap the call: L.trace(lambda: build(...))."
            ) from None


def _run(thunk: Callable[[], Any], strict: bool, defaults: DefaultsMode, sharing: Sharing) -> Any:
    tape = Tape()
    try:
        with _recording(tape):
            result = thunk()
    except Exception as error:
        _explain(error, tape)
        raise
    root = _root(result, tape, strict, thunk)
    if root is _EXECUTED:
        return result
    lowered = lower(root, sharing=sharing, defaults=defaults)
    if defaults != "omit" and lowered.spliced:
        lowered.content, unpinned = pinned(lowered.content)
        lowered.unpinned = sorted({*lowered.unpinned, *unpinned})
    _report_orphans(tape, lowered)
    return lowered


def _explain(error: Exception, tape: Tape) -> None:
    recorded = ", ".join(f"{c.target.label} ({place(c.site)})" for c in tape.calls[-5:]) or "nothing"
    error.add_note(f"while tracing; recorded so far: {recorded}")
    if "is not a Module subclass" in str(error):
        error.add_note(
            "torch containers take built modules only. Record the container too: nn = L.wrap(torch.nn), then "
            "nn.Sequential(...), nn.ModuleList([...])."
        )


_EXECUTED = object()


def _root(result: Any, tape: Tape, strict: bool, thunk: Any) -> Any:
    """The encoded root of the config, or `_EXECUTED` when the thunk's own result is to be given back."""
    kind = type(result)
    if kind is Node:
        return tape.encoder.value(result, "the result")
    config = is_config_object(result)
    if (kind is dict or config) and _is_mapping(result) and _holds_call(result):
        return tape.encoder.value(dict(result) if kind is dict else result, "the result")
    if not strict:
        if kind in (list, tuple) and _holds_call(result):
            return tape.encoder.value(list(result), "the result")
        if not tape.calls:
            return _EXECUTED
        raise TraceLeakError(_leak_text(result, tape))
    raise TraceError(_strict_text(result, tape, thunk))


def _is_mapping(value: Any) -> bool:
    return hasattr(value, "keys")


def _holds_call(value: Any) -> bool:
    kind = type(value)
    if kind is Node:
        return True
    if is_config_object(value):
        tree = Encoder().value(value, "the result")
        return not tree.as_config
    if kind is dict:
        return any(map(_holds_call, value.values()))
    return kind in (list, tuple) and any(map(_holds_call, value))


def _shown(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "<a value whose repr fails>"
    text = " ".join(text.split())
    return f"{text if len(text) <= 80 else text[:77] + '...'} of type {type(value).__name__}"


def _recorded(tape: Tape) -> str:
    return ", ".join(f"{c.target.label} ({place(c.site)})" for c in tape.calls[:8]) or "none"


def _leak_text(result: Any, tape: Tape) -> str:
    return (
        f"The thunk returned {_shown(result)}, which is not a config, although calls were recorded: "
        f"{_recorded(tape)}. It may hold them half-built. Decorate what builds the returned object, or "
        "return the config itself."
    )


def _strict_text(result: Any, tape: Tape, thunk: Any) -> str:
    text = (
        f"The thunk returned {_shown(result)}, and a config was expected. "
        f"Configurable calls recorded: {_recorded(tape)}. "
    )
    if inspect.iscoroutine(result) or inspect.isgenerator(result):
        if inspect.iscoroutine(result):
            result.close()
        return text + "An async or generator function runs later: call the builders in a plain function."
    culprit = _first_call(thunk)
    if culprit:
        text += f"{culprit!r} is not configurable: decorate it with L.configurable. "
    return text + "Or pass strict=False to get the executed value."


def _first_call(thunk: Any) -> str | None:
    """The callable that a one-line thunk calls first, by name, when it is not decorated."""
    code = getattr(thunk, "__code__", None)
    if code is None:
        return None
    for name in code.co_names:
        found = thunk.__globals__.get(name)
        if callable(found) and not hasattr(found, "_tl_target"):
            return str(name)
    return None


def _report_orphans(tape: Tape, lowered: Lowered) -> None:
    lost = [call for call in tape.calls if call not in lowered.placed]
    if not lost:
        return
    names = ", ".join(f"{call.target.label} ({place(call.site)})" for call in lost[:8])
    if len(lost) == len(tape.calls):
        raise TraceLeakError(
            f"None of the recorded calls is part of the result: {names}. Return what they made."
        )
    warnings.warn(
        f"Recorded but not part of the config: {names}. They will not be built.",
        OrphanNodeWarning,
        stacklevel=4,
    )
