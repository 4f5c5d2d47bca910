"""A capture equals a naive one, and the model that it watched equals one that nobody watched.

Axes: model x plan (hooks only, function mode, logged graph) x training and evaluation. The naive captures
clone everything at once: a forward hook per module, and a function mode that knows nothing but one name. Not
compared: names of ops, which the naive captures do not have.
"""

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from observed_models import CASES, made
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

import tl_integrations as tl
from tl_integrations.capture.leaves import tensor_leaves

State = dict[str, Any]


class NaiveFunctionCapture(TorchFunctionMode):
    """Clones every result of functions of one name."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.kept: list[Tensor] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        if getattr(func, "__name__", "").strip("_") == self.name:
            self.kept += [leaf.detach().clone() for _, leaf in tensor_leaves(out)]
        return out


@contextmanager
def naive_hooks(model: nn.Module, kept: list[tuple[str, Tensor]]) -> Iterator[None]:
    """Clones every module's output, the root's excepted."""
    handles = []
    for name, module in list(model.named_modules())[1:]:

        def hook(m: nn.Module, args: Any, out: Any, name: str = name) -> None:
            kept.extend((name, leaf.detach().clone()) for _, leaf in tensor_leaves(out))

        handles.append(module.register_forward_hook(hook))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def state_after(model: nn.Module, out: Any) -> State:
    """Everything that a capture must not change: output, gradients, buffers, the RNG."""
    leaves = [leaf for _, leaf in tensor_leaves(out)]
    loss = sum(leaf.float().sum() for leaf in leaves if leaf.requires_grad)
    if isinstance(loss, Tensor):
        loss.backward()
    return {
        "out": leaves,
        "grads": [p.grad for p in model.parameters()],
        "buffers": list(model.buffers()),
        "rng": torch.get_rng_state(),
    }


def assert_same(a: State, b: State) -> None:
    for key in a:
        left, right = a[key], b[key]
        pairs = zip(left, right, strict=True) if isinstance(left, list) else [(left, right)]
        for x, y in pairs:
            assert (x is None and y is None) or torch.equal(x, y), key


@contextmanager
def quiet() -> Iterator[None]:
    """Warnings about fused paths and unused names are tested elsewhere."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        yield


PLANS = {"hooks": ("**", False), "functions": ("func('relu')", False), "graph": ("func('relu')", True)}


@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("name", CASES)
def test_a_watched_model_equals_an_unwatched_one(name: str, plan: str) -> None:
    save, graph = PLANS[plan]
    model, args, kwargs = made(name)
    torch.manual_seed(1)
    expected = state_after(model, model(*args, **kwargs))
    watched, args, kwargs = made(name)
    torch.manual_seed(1)
    with quiet():
        taken = tl.record(watched, args, kwargs, save=save, graph=graph, gradients=True)
    assert_same(state_after(watched, taken.output), expected)


@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("name", CASES)
def test_module_outputs_equal_a_naive_hook_capture(name: str, graph: bool) -> None:
    model, args, kwargs = made(name)
    naive: list[tuple[str, Tensor]] = []
    torch.manual_seed(1)
    with naive_hooks(model, naive):
        model(*args, **kwargs)
    watched, args, kwargs = made(name)
    torch.manual_seed(1)
    with quiet():
        taken = tl.record(watched, args, kwargs, save="**", graph=graph)
    assert [record.address for record in taken] == [name for name, _ in naive]
    assert all(torch.equal(record.out, out) for record, (_, out) in zip(taken, naive, strict=True))
    assert len({record.layer for record in taken}) == len(taken)


@pytest.mark.parametrize("keep", ["alias", "clone"])
@pytest.mark.parametrize("graph", [False, True])
@pytest.mark.parametrize("function", ["relu", "linear", "add", "getitem"])
@pytest.mark.parametrize("name", CASES)
def test_function_results_equal_a_naive_mode_capture(
    name: str, function: str, graph: bool, keep: Any
) -> None:
    model, args, kwargs = made(name)
    naive = NaiveFunctionCapture(function)
    torch.manual_seed(1)
    with naive:
        model(*args, **kwargs)
    watched, args, kwargs = made(name)
    torch.manual_seed(1)
    with quiet():
        taken = tl.record(watched, args, kwargs, save=tl.func(function), graph=graph, keep=keep)
    assert len(taken) == len(naive.kept)
    assert all(torch.equal(record.out, out) for record, out in zip(taken, naive.kept, strict=True))


@pytest.mark.parametrize("name", CASES)
def test_evaluation_without_gradients_equals_too(name: str) -> None:
    model, args, kwargs = made(name)
    with torch.no_grad(), quiet():
        expected = [leaf for _, leaf in tensor_leaves(model.eval()(*args, **kwargs))]
        for save, graph in PLANS.values():
            out = tl.record(model, args, kwargs, save=save, graph=graph).output
            for (_, leaf), wanted in zip(tensor_leaves(out), expected, strict=True):
                # Looking inside nn.Transformer switches its fused kernel off, which rounds differently.
                fused = name == "encoder" or name == "attention"
                assert torch.allclose(leaf, wanted, atol=1e-5) if fused else torch.equal(leaf, wanted)
