"""Where values stop being finite: what is known of it, and a light test of modules' outputs at every step."""

import cmath
import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from tl_integrations.capture.binding import binding_for
from tl_integrations.capture.distributed import local_part
from tl_integrations.capture.events import Record
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.module_source import Tap
from tl_integrations.capture.module_tree import ModuleTree, Node, module_tree
from tl_integrations.capture.payloads import is_functorch_wrapped
from tl_integrations.capture.run import backward_task
from tl_integrations.capture.selector import Selector
from tl_integrations.capture.statistics import fetch
from tl_integrations.errors import UnsupportedModelError
from tl_integrations.options import CaptureOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where the first value that was not finite came from, as far as that is known."""

    step: int
    address: str | None = None
    """The module, `""` for the root; None: nothing that runs inside a step was being looked at."""
    func_name: str = ""
    """The op, where ops were seen; else the class of the module."""
    words: str = ""

    def __str__(self) -> str:
        return self.words


def origin_in_records(step: int, records: Iterable[Record]) -> Origin | None:
    """The first captured output that was not finite, in the order they were made; None if all were."""
    for record in records:
        if record.io == "output" and (record.statistics or {}).get("nonfinite_fraction", 0.0) > 0:
            what = f"{record.func_name} in {place(record.address)}"
            what = what if record.kind == "op" else f"the output of {place(record.address)}"
            words = f"{what} is the first captured one that was not finite at step {step}"
            return Origin(step=step, address=record.address, func_name=record.func_name, words=words)
    return None


def unknown_origin(step: int, loss: float) -> Origin:
    """What can be said when nothing inside the step was looked at."""
    return Origin(
        step=step,
        words=f"loss {loss} at step {step} is not finite; first non-finite at or before step {step}, "
        "where is not known (watch_nonfinite=True or replay=True finds out)",
    )


def place(address: str) -> str:
    """A module's address in a sentence."""
    return repr(address) if address else "the model itself"


def is_finite(tensor: Tensor) -> bool:
    """Whether all values of a tensor are finite; waits for its device."""
    if not _has_values(tensor):
        return True
    local = local_part(tensor)
    # A finite sum needs finite values; one that overflowed only leads to the careful test.
    dtype = torch.float32 if local.dtype.itemsize < 4 else None
    total = local.detach().sum(dtype=dtype).item()
    return cmath.isfinite(total) or bool(torch.isfinite(local).all())


class FiniteWatch:
    """Tests what chosen modules, the model itself and the step return, and names the first not finite.

    One sum per module's output, and one transfer per device and step: about 2 to 4 % of a step on a CPU (see
    tests/benchmarks/RESULTS.md). Hooks stand on the modules only while a forward runs.

    Args:
        model: The model.
        selector: Modules whose outputs it takes are tested; where it takes none, all modules.

    Raises:
        UnsupportedModelError: if a part of the model runs through torch.compile, where hooks see nothing.
    """

    def __init__(self, model: nn.Module, selector: Selector) -> None:
        self._model = model
        self._selector = selector
        self._found: tuple[int, Node | None] | None = None
        self._pending: list[tuple[int, Node | None, Tensor]] = []
        self._step = 0
        self._bind(module_tree(model))

    def _bind(self, tree: ModuleTree) -> None:
        if tree.compiled:
            raise UnsupportedModelError(
                "watch_nonfinite=True tests what modules return at every step, and part of this model runs "
                "through torch.compile, where that cannot be seen. Use replay=True, which runs the one step "
                "again without it, or do not compile."
            )
        self._tree = tree
        self._hooks = [(node, self._hook(node)) for node in _watched(self._selector, tree)]

    @contextmanager
    def armed(self, step: int) -> Iterator[None]:
        """Test the forward that runs in the block."""
        tree = module_tree(self._model)
        if tree is not self._tree:
            self._bind(tree)
        self._step = step
        standing = [(module, hook) for node, hook in self._hooks if (module := node.ref()) is not None]
        try:
            for module, hook in standing:
                module.register_forward_hook(hook)
            yield
        finally:
            for module, hook in standing:
                for key in [key for key, other in module._forward_hooks.items() if other is hook]:
                    del module._forward_hooks[key]

    def test_loss(self, out: Any) -> None:
        """Test what the step itself came to, so that no module of a later step is blamed for it."""
        if self._found is None:
            self._test_leaves(None, loss_in(out))

    @property
    def waits(self) -> bool:
        """Whether answers lie on a device, which `take` would have to wait for."""
        return bool(self._pending)

    def take(self) -> Origin | None:
        """The first module whose output was not finite since the last call; None if all were finite."""
        found, self._found = self._found, None
        pending, self._pending = self._pending, []
        if found is None and pending:
            flags = fetch([flag.float().view(1) for *_, flag in pending])
            found = next(((step, n) for (step, n, _), (flag,) in zip(pending, flags) if not flag), None)
        if found is None:
            return None
        return _origin(*found)

    def _hook(self, node: Node) -> Callable[[nn.Module, Any, Any], None]:
        def look(module: nn.Module, args: Any, out: Any) -> None:
            if self._found is not None or backward_task() != -1:
                return
            self._test_leaves(node, out)

        return look

    def _test_leaves(self, node: Node | None, out: Any) -> None:
        leaves = [("", out)] if type(out) is Tensor else tensor_leaves(out)
        # What the test computes is no op of the model's, where a capture watches as well.
        with torch._C.DisableTorchFunction():
            for _, leaf in leaves:
                self._test(node, leaf)

    def _test(self, node: Node | None, leaf: Tensor) -> None:
        if not _has_values(leaf):
            return
        local = local_part(leaf)
        if local.device.type == "cpu":
            if not is_finite(local):
                self._found = (self._step, node)
            return
        # A device is never asked inside a forward; the greatest magnitude is finite only if all values are.
        largest = torch.linalg.vector_norm(local.detach(), math.inf)
        self._pending.append((self._step, node, torch.isfinite(largest)))


def loss_in(out: Any) -> Any:
    """The loss in what a training step returned, or all of it."""
    return out["loss"] if isinstance(out, Mapping) and "loss" in out else out


def _origin(step: int, node: Node | None) -> Origin:
    if node is None:
        words = (
            f"the loss is the first watched value not finite at step {step}: code outside the modules made it"
        )
        return Origin(step=step, words=words)
    what = f"the output of {place(node.address)} ({node.class_name})"
    words = f"{what} is the first watched one not finite at step {step}"
    return Origin(step=step, address=node.address, func_name=node.class_name, words=words)


def _watched(selector: Selector, tree: ModuleTree) -> list[Node]:
    """The modules that are selected, else all, and the model itself, whose own code may be the culprit."""
    plan = binding_for(selector, tree, CaptureOptions(), graph=False, halts=False).plan
    taps: tuple[Tap, ...] = (*plan.taps, *plan.fused_taps)
    nodes = [tap.node for tap in taps if tap.io == "output" and tap.node.index]
    chosen = nodes or tree.nodes[1:]
    return [node for node in (*chosen, tree.nodes[0]) if not node.scripted and not node.opaque]


def _has_values(tensor: Tensor) -> bool:
    measurable = tensor.is_floating_point() or tensor.is_complex()
    plain = tensor.layout is torch.strided and not tensor.is_meta and not is_functorch_wrapped(tensor)
    return measurable and plain and tensor.numel() > 0
