"""Events from every torch function that runs, through a TorchFunctionMode.

The mode's handler is a closure over everything that it reads: attribute look-ups on `self` at every call cost
as much as the rest of the handler.
"""

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode

from tl_integrations.capture.decision_table import DecisionTable, Entry
from tl_integrations.capture.effects import asks_in_place, flat_tensors
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.run import Run
from tl_integrations.capture.selector import Selector
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
    leaves = (("", out),) if isinstance(out, Tensor) else tensor_leaves(out)
    for index, (path, leaf) in enumerate(leaves):
        run.event_count += 1
        count = run.counts[entry.type] = run.counts.get(entry.type, 0) + 1
        try:
            _offer_leaf(run, entry, args, kwargs, path, leaf, index, f"{entry.type}_{count}", line)
        except Exception as error:
            run.on_error(error)


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
    verdict: bool | CaptureSpec = decision is True
    if isinstance(decision, Selector):
        event = run.event(
            leaf,
            kind="op",
            func_name=entry.func_name,
            type_name=entry.type,
            label=label,
            path=path,
            output_index=index,
        )
        verdict = decision(event) or False
    if not verdict:
        return
    run.catch(
        leaf,
        verdict,
        args,
        kwargs,
        kind="op",
        func_name=entry.func_name,
        short_label=label,
        path=path,
        output_index=index,
        line=None if line is None else line + index,
    )
