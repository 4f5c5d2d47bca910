"""A function handler that writes down every op: who read what, where, with which arguments."""

import inspect
import sys
from threading import get_ident
from time import perf_counter
from typing import Any
from weakref import ref

from torch import Tensor, nn
from torch.nn import Parameter

from tl_integrations.capture.decision_table import DecisionTable, Entry
from tl_integrations.capture.effects import asks_in_place
from tl_integrations.capture.forward_wrappers import CALLERS, ForwardWrapper
from tl_integrations.capture.function_source import offer, protect
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.oplog import TENSOR
from tl_integrations.capture.raw_log import RawLog, calling_line, literal
from tl_integrations.capture.run import Run, backward_task
from tl_integrations.capture.watching_mode import Handler


def graph_handler(run: Run, table: DecisionTable, log: RawLog) -> Handler:
    """A handler that logs every op and keeps what the selector takes."""
    lookup, learn = table.entries.get, table.learn
    alive, calls = run.aliases.by_storage, run.calls
    ids, lines, source = log.ids, log.lines, log.source
    known, append, clock = ids.get, lines.append, perf_counter

    def handle(_: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        entry = lookup(func)
        if entry is None:
            entry = learn(func)
        if alive and (entry.risky or kwargs):
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
                literals.append(literal(value, reads, log))
        named = {k: literal(v, reads, log) for k, v in kwargs.items()} if kwargs else None
        start = clock()
        try:
            out = func(*args, **kwargs) if kwargs else func(*args)
        except BaseException:
            log.failing = log.failing or _failing(entry, args)
            raise
        seconds = clock() - start
        code, number = calling_line()
        line = len(lines)
        result = args[0] if entry.returns_target else out
        if type(result) is Tensor:
            inplace = entry.risky and _writes_result(entry, args, kwargs, result)
            ids[id(result)] = (line, ref(result))
            meta = (result.shape, result.dtype, result.device, result.requires_grad)
            where = (code, number, -1, "", inplace)
            append((entry, calls.current, reads, meta, literals, named, seconds, *where))
        else:
            for path, leaf in tensor_leaves(result):
                inplace = entry.risky and _writes_result(entry, args, kwargs, leaf)
                first = line if isinstance(result, tuple | list | dict) else -1
                ids[id(leaf)] = (len(lines), ref(leaf))
                meta = (leaf.shape, leaf.dtype, leaf.device, leaf.requires_grad)
                where = (code, number, first, path, inplace)
                append((entry, calls.current, reads, meta, literals, named, seconds, *where))
        if entry.wanted:
            offer(run, entry, args, kwargs, result, line)
        return out

    return handle


class LoggingWrapper(ForwardWrapper):
    """Also notes which tensors a module call returned."""

    __slots__ = ("raw_log",)
    raw_log: RawLog

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        log = self.log
        if log.owner != get_ident() or log.paused or sys._getframe(1).f_code.co_filename not in CALLERS:
            return self.forward(*args, **kwargs)
        calls, parent = log.calls, log.current
        call = log.current = len(calls)
        calls.append((self.index, parent))
        try:
            out = self.forward(*args, **kwargs)
            self.raw_log.note_call(call, out)
            return out
        finally:
            log.current = parent


def arguments_by_name(model: nn.Module, args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a forward under the names that its signature gives them."""
    try:
        bound = inspect.signature(type(model).forward).bind(model, *args, **kwargs)
    except (TypeError, ValueError):
        return {**{str(k): v for k, v in enumerate(args)}, **kwargs}
    return dict(list(bound.arguments.items())[1:])


def _writes_result(entry: Entry, args: Any, kwargs: Any, out: Tensor) -> bool:
    writes = entry.touches_from == 0 or asks_in_place(entry.inplace_position, args, kwargs)
    return writes and (any(out is value for value in args) or bool(kwargs and out is kwargs.get("out")))


def _failing(entry: Entry, args: Any) -> tuple[str, str]:
    shapes = ", ".join(str(tuple(v.shape)) if isinstance(v, Tensor) else type(v).__name__ for v in args)
    return entry.func_name, f"({shapes})"
