"""A forward that came out not finite, run again to find the op that began it; nothing shows that it ran."""

import random
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from math import isfinite, isinf, isnan
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from tl_integrations.capture.events import Moment
from tl_integrations.capture.keeping import Keeping
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.module_tree import module_tree
from tl_integrations.capture.nonfinite import Origin, is_finite, place
from tl_integrations.capture.oplog import GraphLog
from tl_integrations.capture.passes import captured_step
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.capture.selector import Always
from tl_integrations.capture.statistics import Summariser
from tl_integrations.capture.watching import Watcher
from tl_integrations.options import CaptureOptions, SummaryOptions

LARGEST = SummaryOptions(statistics=("absmax",))
"""One number that tells them apart: NaN where there is a NaN, infinite where there is only an infinity."""
SILENCED = ("log", "log_dict")
"""Methods of a LightningModule that a replay may not reach: their numbers would count twice."""


class RandomState:
    """The random number generators of Python, numpy, torch and its devices, as they are now."""

    def __init__(self) -> None:
        self._python = random.getstate()
        self._numpy = np.random.get_state()
        self._cpu = torch.get_rng_state()
        # Asking a device that is not in use would start it.
        self._cuda = torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []  # type: ignore[no-untyped-call]

    def restore(self) -> None:
        random.setstate(self._python)
        np.random.set_state(self._numpy)
        torch.set_rng_state(self._cpu)
        if self._cuda:
            torch.cuda.set_rng_state_all(self._cuda)


class Before:
    """What a forward starts from and may change: random numbers and buffers, copied."""

    def __init__(self, model: nn.Module) -> None:
        self.random: RandomState = RandomState()
        copies: dict[int, Tensor] = {}
        self.buffers: list[tuple[nn.Module, str, Tensor]] = [
            (module, name, copies.setdefault(id(buffer), buffer.detach().clone()))
            for module in model.modules()
            for name, buffer in module._buffers.items()
            if buffer is not None
        ]


@contextmanager
def as_it_was(model: nn.Module, before: Before) -> Iterator[None]:
    """In the block the model stands as before its forward; afterwards as it stood when the block began.

    Buffers are other tensors meanwhile, and so are tensors and plain containers that modules hold as
    attributes, such as a metric's state. The model's own are never written, so their versions stay.
    """
    after = RandomState()
    kept = [(module, dict(vars(module)), dict(module._buffers)) for module in model.modules()]
    try:
        for module, attributes, _ in kept:
            vars(module).update(_copied(attributes))
        for module, name, buffer in before.buffers:
            module._buffers[name] = buffer
        before.random.restore()
        yield
    finally:
        after.restore()
        for module, attributes, buffers in kept:
            module._buffers.clear()
            module._buffers.update(buffers)
            for name in vars(module).keys() - attributes.keys():
                del vars(module)[name]
            vars(module).update(attributes)


def find_origin(
    model: nn.Module, before: Before, again: Callable[[], Any], args: Sequence[Any], step: int
) -> Origin | None:
    """Run a forward again from where it started and name the op whose result was first not finite.

    Args:
        model: The model that the forward runs.
        before: Its state when the forward began.
        again: The forward.
        args: What it is given; examined first.
        step: The training step it belongs to.
    Returns: None if it came out finite this time.
    """
    source = _bad_source(model, args, step)
    if source is not None:
        return source
    tree = module_tree(model)
    keeping = Keeping(payloads=False, aliases=False, summariser=Summariser(LARGEST))
    watcher = Watcher(model, tree, Always(), keeping, graph=True, options=CaptureOptions())
    run = watcher.begin(Moment(step=step), 1, lambda error: None)
    with as_it_was(model, before):
        for module in model.modules():
            if hasattr(type(module), "log_dict"):
                vars(module).update(dict.fromkeys(SILENCED, _say_nothing))
        out = None
        try:
            with watcher.armed(run):
                out = again()
        finally:
            ended = watcher.end(run, out, own_all=False)
    return _first_op(captured_step([ended]), step)


def _bad_source(model: nn.Module, args: Sequence[Any], step: int) -> Origin | None:
    """What was not finite before the forward began."""
    for path, leaf in tensor_leaves(tuple(args)):
        if not is_finite(leaf):
            return Origin(step=step, words=f"the batch of step {step} is itself not finite: arguments{path}")
    for name, parameter in model.named_parameters():
        if not is_finite(parameter):
            words = f"parameter {name!r} was not finite before step {step} began"
            return Origin(step=step, address=name.rpartition(".")[0], func_name="parameter", words=words)
    return None


def _first_op(captured: CapturedStep, step: int) -> Origin | None:
    graph = captured.graph
    assert graph is not None, "the graph was logged"
    largest = {
        record.line: record.statistics["absmax"]
        for record in captured.records
        if record.line is not None and record.statistics is not None
    }
    start = _last_bad(graph, largest)
    if start is None:
        return None
    test = isnan if isnan(largest[start]) else isinf
    line = _earliest(graph, largest, start, test)
    address, name = _called(graph, line)
    kind = "NaN" if test is isnan else "infinity"
    words = f"{name} in {place(address)} gave the first {kind} of step {step}"
    infinite = [read for read in graph.lines[line].reads if isinf(largest.get(read, 0.0))]
    if test is isnan and infinite:
        before, made = _called(graph, _earliest(graph, largest, infinite[0], isinf))
        words += f", from an infinity that {made} in {place(before)} gave"
    return Origin(step=step, address=address, func_name=name, words=words)


def _last_bad(graph: GraphLog, largest: Mapping[int, float]) -> int | None:
    """The output that is not finite, else the last op whose result was not."""

    def bad(number: int) -> bool:
        return not isfinite(largest.get(number, 0.0))

    returned = [read for line in graph.lines if line.kind == "output" for read in line.reads if bad(read)]
    if returned:
        return returned[0]
    return max(filter(bad, largest), default=None)


def _earliest(
    graph: GraphLog, largest: Mapping[int, float], start: int, test: Callable[[float], bool]
) -> int:
    """Follow what was read back to the op that read nothing bad itself."""
    line = start
    while bad := [read for read in graph.lines[line].reads if read < line and test(largest.get(read, 0.0))]:
        line = min(bad)
    return line


def _called(graph: GraphLog, number: int) -> tuple[str, str]:
    line = graph.lines[number]
    return graph.modules[line.call].address, line.func_name


def _copied(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Copies of what a forward may change in a module's attributes, apart from torch's own."""
    own = vars(nn.Module())
    return {
        name: _copy(value)
        for name, value in attributes.items()
        if name not in own and type(value) in (Tensor, list, dict, set, deque)
    }


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: _copy_leaf(item) for key, item in value.items()}
    return type(value)(_copy_leaf(item) for item in value)


def _copy_leaf(value: Any) -> Any:
    return value.detach().clone() if type(value) is Tensor else value


def _say_nothing(*args: Any, **kwargs: Any) -> None:
    return None
