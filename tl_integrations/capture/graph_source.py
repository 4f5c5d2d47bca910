"""A function handler that writes down every op: who read what, where, with which arguments."""

import inspect
import sys
from collections.abc import Callable
from threading import get_ident
from time import perf_counter
from typing import Any
from weakref import ref

from torch import Tensor, nn
from torch.nn import Parameter

from tl_integrations.capture.decision_table import DecisionTable, Entry
from tl_integrations.capture.effects import touches_now
from tl_integrations.capture.forward_wrappers import CALL_IMPL, CALLERS, ForwardWrapper
from tl_integrations.capture.function_source import hold, offer, protect
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.oplog import TENSOR
from tl_integrations.capture.places import USERS_CODE
from tl_integrations.capture.raw_log import PLAIN, RawLog, described, literal
from tl_integrations.capture.run import Run, backward_task
from tl_integrations.capture.watching_mode import Handler, WatchingMode

_SEVERAL = (tuple, list, dict)


def graph_handler(run: Run, table: DecisionTable, log: RawLog) -> Handler:
    """A handler that logs every op and keeps what the selector takes."""
    lookup, learn = table.entries.get, table.learn
    alive, held, calls = run.aliases.by_storage, run.held, run.calls
    holds = run.holds and run.keeping.aliases
    ids, lines, source = log.ids, log.lines, log.source
    known, append, users_code = ids.get, lines.append, USERS_CODE.get
    clock, frame_at = perf_counter, sys._getframe

    # All stands in one function: behind a large matrix product, to call another of ours costs ten times what
    # it costs in a loop.
    def handle(_: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        entry = lookup(func)
        if entry is None:
            entry = learn(func)
        touches = (entry.risky or kwargs) and touches_now(entry, args, kwargs)
        if touches and (held or alive):
            protect(run, entry, args, kwargs)
        if not entry.is_op or calls.paused or backward_task() != -1:
            return func(*args, **kwargs) if kwargs else func(*args)
        reads: list[int] = []
        literals: list[Any] = []
        for value in args:
            kind = type(value)
            if kind is Tensor or kind is Parameter:
                found = known(id(value))
                reads.append(found[0] if found is not None and found[1]() is value else source(value))
                literals.append(TENSOR)
            else:
                literals.append(value if kind in PLAIN else literal(value, reads, log))
        named = kwargs and {k: v if type(v) in PLAIN else literal(v, reads, log) for k, v in kwargs.items()}
        start = clock()
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException:
            log.failing = log.failing or _failing(entry, args)
            raise
        seconds = clock() - start
        # By the shorter way two frames of its own and of torch's lie between; see `fast_handle`.
        frame = frame_at(1) if types is not None else frame_at(3)
        code = frame.f_code
        place = (code, frame.f_lasti) if users_code(id(code)) is code else log.place(frame, calls.current)
        line = len(lines)
        result = args[0] if entry.returns_target else out
        if type(result) is Tensor:
            ids[id(result)] = line, ref(result)
            meta = result.shape, result.dtype, result.device, result.requires_grad
            inplace = touches and _is_target(entry, args, kwargs, result)
            append((entry, calls.current, reads, meta, literals, named, seconds, place, -1, "", inplace))
        else:
            site = literals, named, seconds, place
            _log_leaves(log, result, (entry, calls.current, reads), site, (args, kwargs) if touches else None)
        if entry.wanted:
            fresh = holds and entry.fresh and (not touches or entry.touches_from)
            if not (fresh and hold(run, entry, out, line)):
                offer(run, entry, args, kwargs, result, line)
        return out

    return handle


def _log_leaves(
    log: RawLog,
    result: Any,
    op: tuple[Entry, int, list[int]],
    site: tuple[Any, ...],
    touched: tuple[Any, Any] | None,
) -> None:
    """Lines of a result that is more than one plain tensor.

    Args:
        log: Where they go.
        result: The result.
        op: Entry, module call and lines read.
        site: What follows the description of a tensor in a line.
        touched: The arguments of a call that may have written them.
    """
    first = len(log.lines) if isinstance(result, _SEVERAL) else -1
    for path, leaf in tensor_leaves(result):
        log.ids[id(leaf)] = len(log.lines), ref(leaf)
        inplace = touched is not None and _is_target(op[0], *touched, leaf)
        log.lines.append((*op, described(leaf), *site, first, path, inplace))


class LoggingWrapper(ForwardWrapper):
    """Also notes who called the module and which tensors the call returned."""

    __slots__ = ("raw_log",)
    raw_log: RawLog

    def prepare(self, run: Run, mode: WatchingMode | None) -> None:
        assert run.raw is not None, "this kind is planned only for graphs"
        self.raw_log = run.raw

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        log = self.log
        caller = sys._getframe(1).f_code
        if log.owner != get_ident() or log.paused or caller.co_filename not in CALLERS:
            return self.forward(*args, **kwargs)
        calls, parent, raw = log.calls, log.current, self.raw_log
        call = log.current = len(calls)
        calls.append((self.index, parent))
        if caller is CALL_IMPL:
            # Between a module without hooks and who called it lie two frames of torch's.
            frame = sys._getframe(3)
            code = frame.f_code
            users = USERS_CODE.get(id(code)) is code
            raw.callers[call] = (code, frame.f_lasti) if users else raw.place(frame, parent)
        try:
            out = self.forward(*args, **kwargs)
            if type(out) is Tensor:
                known = raw.ids.get(id(out))
                raw.call_outputs[call] = (known[0],) if known is not None and known[1]() is out else ()
            else:
                raw.note_outputs(call, out)
            return out
        finally:
            log.current = parent


class RootWrapper(ForwardWrapper):
    """Notes what the model is given and what it returns, where the caller's own calls are watched."""

    __slots__ = ("note", "run")
    run: Run

    def __init__(self, module: nn.Module, note: Callable[[Run, Any, Any], None]) -> None:
        super().__init__(module, 0)
        self.note: Callable[[Run, Any, Any], None] = note

    def prepare(self, run: Run, mode: WatchingMode | None) -> None:
        self.run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        log, raw = self.log, self.run.raw
        if log.owner != get_ident() or log.paused or log.current or raw is None:
            return self.forward(*args, **kwargs)
        self.note(self.run, args, kwargs)
        out = self.forward(*args, **kwargs)
        raw.add_outputs(out)
        return out


def arguments_by_name(model: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a forward under the names that its signature gives them."""
    try:
        bound = inspect.signature(type(model).forward).bind(model, *args, **kwargs)
    except (TypeError, ValueError):
        return {**{str(k): v for k, v in enumerate(args)}, **kwargs}
    return dict(list(bound.arguments.items())[1:])


def _is_target(entry: Entry, args: Any, kwargs: Any, out: Tensor) -> bool:
    """Whether a result is the argument that the call wrote."""
    if entry.touches_from:
        return False
    return any(out is value for value in args) or bool(kwargs and out is kwargs.get("out"))


def _failing(entry: Entry, args: Any) -> tuple[str, str]:
    shapes = ", ".join(str(tuple(v.shape)) if isinstance(v, Tensor) else type(v).__name__ for v in args)
    return entry.func_name, f"({shapes})"
