"""The same tensors kept by hand and by other libraries that work beside ours in one process."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch import Tensor, fx, nn

Run = Callable[[Any], object]


def hooked(model: nn.Module, names: Sequence[str], x: Any) -> list[Tensor]:
    """What people write by hand: hooks that clone, put on and taken off again."""
    kept: list[Tensor] = []

    def keep(module: nn.Module, args: Any, out: Any) -> None:
        kept.append((out if isinstance(out, Tensor) else out[0]).detach().clone())

    handles = [model.get_submodule(name).register_forward_hook(keep) for name in names]
    try:
        model(x)
    finally:
        for handle in handles:
            handle.remove()
    return kept


def by_fx(model: nn.Module, names: Sequence[str]) -> Run:
    """A model rewritten by torch.fx that also returns what these modules return: references, not copies."""
    rewritten = fx.symbolic_trace(model)
    nodes = {node.target: node for node in rewritten.graph.nodes if node.op == "call_module"}
    output = next(node for node in rewritten.graph.nodes if node.op == "output")
    output.args = ((output.args[0], [nodes[name] for name in names]),)
    rewritten.recompile()
    return lambda x: rewritten(x)


def by_captum(model: nn.Module, names: Sequence[str]) -> Run:
    """captum's LayerActivation on the same modules."""
    from captum.attr import LayerActivation

    activation = LayerActivation(model, [model.get_submodule(name) for name in names])
    return lambda x: activation.attribute(x)


def by_nnsight(model: nn.Module, names: Sequence[str]) -> Run:
    """nnsight's trace on the same modules; it keeps references, not copies."""
    from nnsight import NNsight

    watched = NNsight(model)

    def run(x: Any) -> Any:
        kept = []
        with watched.trace(x):
            for name in names:
                kept.append(watched.get(name).output.save())
        return kept

    return run


LIBRARIES: Mapping[str, Callable[[nn.Module, Sequence[str]], Run]] = {
    "fx": by_fx,
    "captum": by_captum,
    "nnsight": by_nnsight,
}
