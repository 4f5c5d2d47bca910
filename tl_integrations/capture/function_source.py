"""Events from every torch function that runs, through a TorchFunctionMode.

The mode's handler is a closure over everything that it reads: attribute look-ups on `self` at every call cost
as much as the rest of the handler.
"""

from collections.abc import Callable, Sequence
from types import MethodType
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from tl_integrations.capture.decision_table import DecisionTable, Entry
from tl_integrations.capture.effects import asks_in_place, flat_tensors
from tl_integrations.capture.events import Event
from tl_integrations.capture.halting import HaltSignal, check_halt
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.run import Run
from tl_integrations.capture.selector import Selector
from tl_integrations.capture.window import Window
from tl_integrations.options import CaptureSpec

Handler = Callable[..., Any]


class WatchingMode(TorchFunctionMode):
    """A function mode whose handler is given to it."""

    def __init__(self, handler: Handler) -> None:
        self.__torch_function__ = MethodType(handler, self)  # type: ignore[method-assign]


def sparse_handler(run: Run, table: DecisionTable) -> Handler:
    """A handler that keeps what the selector takes and remembers nothing of the rest."""
    lookup = table.entries.get
    learn = table.learn
    alive = run.aliases.by_storage

    def handle(_: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        entry = lookup(func)
        if entry is None:
            entry = learn(func)
        if alive and (entry.risky or kwargs):
            protect(run, entry, args, kwargs)
        out = func(*args, **kwargs) if kwargs else func(*args)
        if entry.wanted:
            offer(run, entry, args, kwargs, out)
        return out

    return handle


def protect(run: Run, entry: Entry, args: Any, kwargs: Any) -> None:
    """Copy aliases on memory that this call may write or hand out."""
    if entry.touches_from >= 0:
        touched = args[entry.touches_from :]
        run.aliases.release(flat_tensors((*touched, *kwargs.values()) if kwargs else touched))
    elif asks_in_place(entry.inplace_position, args, kwargs):
        run.aliases.release(flat_tensors((*args, *kwargs.values()) if kwargs else args))


def offer(run: Run, entry: Entry, args: Any, kwargs: Any, out: Any, line: int | None = None) -> None:
    """Ask the selector about each tensor of a result, and keep what it takes."""
    if run.skipping:
        return
    leaves: Sequence[tuple[str, Tensor]] = (("", out),) if isinstance(out, Tensor) else tensor_leaves(out)
    for index, (path, leaf) in enumerate(leaves):
        run.event_count += 1
        count = run.counts[entry.type] = run.counts.get(entry.type, 0) + 1
        try:
            _offer_leaf(run, entry, args, kwargs, path, leaf, index, f"{entry.type}_{count}", line)
        except Exception as error:
            run.on_error(error)
    if run.halt is not None:
        _halt_or_go_on(run, entry, leaves)


def _halt_or_go_on(run: Run, entry: Entry, leaves: Sequence[tuple[str, Tensor]]) -> None:
    assert run.halt is not None
    count = run.counts[entry.type] - len(leaves)
    for index, (path, leaf) in enumerate(leaves):
        label = f"{entry.type}_{count + index + 1}"
        names: dict[str, Any] = {"func_name": entry.func_name, "type_name": entry.type}
        try:
            check_halt(
                run.halt, run.event(leaf, kind="op", label=label, path=path, output_index=index, **names)
            )
        except Exception as error:
            run.on_error(error)
        except HaltSignal:
            run.halted = True
            raise


def _offer_leaf(
    run: Run,
    entry: Entry,
    args: Any,
    kwargs: Any,
    path: str,
    leaf: Tensor,
    index: int,
    label: str,
    line: int | None,
) -> None:
    decision = entry.decision
    if decision is False and run.window is None:
        return
    verdict: bool | CaptureSpec | None = decision is True
    event = None
    if isinstance(decision, Selector) or run.window is not None:
        recent = run.window.events if run.window is not None else ()
        names: dict[str, Any] = {"func_name": entry.func_name, "type_name": entry.type, "label": label}
        event = run.event(leaf, kind="op", path=path, output_index=index, recent_ops=recent, **names)
        verdict = decision(event) if isinstance(decision, Selector) else verdict
        verdict = run.keeping.default if verdict is None else verdict
    where: dict[str, Any] = {"func_name": entry.func_name, "short_label": label, "path": path}
    where |= {"output_index": index, "line": None if line is None else line + index, "event": event}
    if run.window is not None and event is not None:
        _offer_to_window(run, run.window, event, verdict, leaf, args, kwargs, where)
    elif verdict:
        run.catch(leaf, verdict, args, kwargs, kind="op", **where)


def _offer_to_window(
    run: Run,
    window: Window,
    event: Event,
    verdict: bool | CaptureSpec | None,
    leaf: Tensor,
    args: Any,
    kwargs: Any,
    where: dict[str, Any],
) -> None:
    """Keep an op, or with `followed_by` hold it until its reader comes, and keep what this op confirms."""
    succession = window.succession
    if succession is not None and succession.successor(event):
        run.catches += window.confirmed(args, kwargs)
    window.push(event)
    if verdict and succession is None:
        run.catch(leaf, verdict, args, kwargs, kind="op", **where)
    elif verdict:
        window.remember(leaf, run.caught(leaf, verdict, args, kwargs, kind="op", **where))
