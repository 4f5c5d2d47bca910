"""Events from every torch function that runs: what the handler of a watching mode does with each."""

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from tl_integrations.capture.catch import Catch
from tl_integrations.capture.decision_table import DecisionTable, Entry
from tl_integrations.capture.effects import flat_tensors, touches_now
from tl_integrations.capture.events import Event
from tl_integrations.capture.halting import HaltSignal, check_halt
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.run import Run, backward_task
from tl_integrations.capture.selector import Selector
from tl_integrations.capture.watching_mode import Handler
from tl_integrations.capture.window import Window


def sparse_handler(run: Run, table: DecisionTable) -> Handler:
    """A handler that keeps what the selector takes and remembers nothing of the rest."""
    lookup, learn = table.entries.get, table.learn
    alive, held, holds = run.aliases.by_storage, run.held, run.holds and run.keeping.aliases

    def handle(_: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        entry = lookup(func)
        if entry is None:
            entry = learn(func)
        touches = (entry.wanted or held or alive) and (entry.risky or kwargs)
        if touches := touches and touches_now(entry, args, kwargs):
            protect(run, entry, args, kwargs)
        out = func(*args, **kwargs) if kwargs else func(*args)
        if entry.wanted:
            fresh = holds and entry.fresh and (not touches or entry.touches_from)
            if not (fresh and hold(run, entry, out)):
                offer(run, entry, args, kwargs, args[0] if entry.returns_target else out)
        return out

    return handle


def protect(run: Run, entry: Entry, args: Any, kwargs: Any) -> None:
    """Copy aliases on memory that this call may write or hand out."""
    if run.held:
        run.settle()
    if not run.aliases.by_storage:
        return
    touched = args[entry.touches_from :]
    run.aliases.release(flat_tensors((*touched, *kwargs.values()) if kwargs else touched))


def hold(run: Run, entry: Entry, out: Any, line: int | None = None) -> bool:
    """Keep a result on memory of its own that is kept whatever it is, doing the least that cannot wait.

    Returns: whether that was possible; if not, nothing was done.
    """
    # Behind a large matrix product each call into torch costs ten times what it costs in a loop: three it is.
    if type(out) is not Tensor:
        return False
    calls = run.calls
    if calls.paused or backward_task() != -1:
        return True
    kept = out.detach()
    try:
        version = kept._version
    except RuntimeError:
        # An inference tensor counts no versions.
        return False
    counts, type_name = run.counts, entry.type
    count = counts[type_name] = counts.get(type_name, 0) + 1
    run.held.append((kept, version, calls.current, entry, count, out.requires_grad, line))
    return True


def offer(run: Run, entry: Entry, args: Any, kwargs: Any, out: Any, line: int | None = None) -> None:
    """Ask the selector about each tensor of a result, and keep what it takes."""
    if run.calls.paused or backward_task() != -1:
        return
    leaves: Sequence[tuple[str, Tensor]] = (("", out),) if isinstance(out, Tensor) else tensor_leaves(out)
    counts, type_name = run.counts, entry.type
    plain = entry.decision is True and run.window is None
    for index, (path, leaf) in enumerate(leaves):
        run.event_count += 1
        count = counts[type_name] = counts.get(type_name, 0) + 1
        at = None if line is None else line + index
        try:
            if plain and not run.decides_late:
                # Most kept ops are decided by their function alone: no event is made for them.
                current = run.calls.current
                caught = Catch(
                    leaf, current, "op", entry.func_name, type_name, count, path, index, "output", at
                )
                run.add(run.keep(caught, leaf, True, args, kwargs))
            elif entry.decision is not False or run.window is not None:
                _offer_event(run, entry, args, kwargs, leaf, (count, path, index), at)
        except Exception as error:
            run.on_error(error)
        if run.halt is not None:
            _halt_or_go_on(run, entry, leaf, (count, path, index))


Place = tuple[int, str, int]
"""k-th of its type, path and number of a leaf."""


def _offer_event(
    run: Run, entry: Entry, args: Any, kwargs: Any, leaf: Tensor, place: Place, line: int | None
) -> None:
    count, path, index = place
    event = _event(run, entry, leaf, place)
    decision = entry.decision
    verdict = decision(event) if isinstance(decision, Selector) else decision
    verdict = run.keeping.default if verdict is None else verdict
    successor = run.window is not None and _confirm(run, run.window, event, args, kwargs)
    if not verdict:
        return
    seen = event if run.decides_late else None
    call = run.calls.current
    caught = Catch(leaf, call, "op", entry.func_name, entry.type, count, path, index, "output", line, seen)
    run.keep(caught, leaf, verdict, args, kwargs)
    if run.window is not None and successor:
        run.window.remember(leaf, caught)
    else:
        run.add(caught)


def _confirm(run: Run, window: Window, event: Event, args: Any, kwargs: Any) -> bool:
    """Note an op in the window, and keep the candidates that it confirms.

    Returns: whether ops are candidates first, and kept only when another confirms them.
    """
    succession = window.succession
    if succession is not None and succession.successor(event):
        run.add(*window.confirmed(args, kwargs))
    window.push(event)
    return succession is not None


def _event(run: Run, entry: Entry, leaf: Tensor, place: Place) -> Event:
    count, path, index = place
    return run.event(
        leaf,
        kind="op",
        func_name=entry.func_name,
        type_name=entry.type,
        label=f"{entry.type}_{count}",
        path=path,
        output_index=index,
    )


def _halt_or_go_on(run: Run, entry: Entry, leaf: Tensor, place: Place) -> None:
    assert run.halt is not None
    try:
        check_halt(run.halt, _event(run, entry, leaf, place))
    except HaltSignal:
        run.halted = True
        raise
    except Exception as error:
        run.on_error(error)
