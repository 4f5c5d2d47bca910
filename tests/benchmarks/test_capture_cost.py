"""What a sparse record costs: beside the plain forward, beside hand-written hooks, per op, and to arm."""

import time
from collections.abc import Callable
from statistics import median
from typing import Any

import pytest
import torch
from interleaving import assert_ratio, interleave, is_measuring, table
from reference_models import PLAIN_OP, Chain, made, slowness
from torch import Tensor, nn

import tl_integrations as tl

SAVED = {
    "mlp20": "relu",
    "resnet": "batch_norm",
    "gpt2-4l": "addmm",
    "conv8": "relu",
    "lstm": "relu",
    "wide": "relu",
}
SPARSE = {"mlp20": 1.25, "resnet": 1.15, "gpt2-4l": 1.15, "conv8": 1.10}
LOGGED = {"mlp20": 1.5, "resnet": 1.2, "gpt2-4l": 1.2, "conv8": 1.10}
NAMED = {
    "mlp20": "layers.*",
    "resnet": "**.bn?",
    "gpt2-4l": "h.*.attn.*",
    "conv8": "?",
    "lstm": "*",
    "wide": "",
}
ROUNDS = 21


def hooked(model: nn.Module, names: list[str], x: Any) -> list[Tensor]:
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


def cases_for(name: str) -> dict[str, Callable[[], object]]:
    """The same tensors kept by every way there is without another library."""
    model, x = made(name)
    function = tl.func(SAVED[name])
    cases: dict[str, Callable[[], object]] = {
        "plain": lambda: model(x),
        "record, graph=False": lambda: tl.record(model, x, save=function, graph=False),
        "record, graph=False, clone": lambda: tl.record(model, x, save=function, graph=False, keep="clone"),
        "record": lambda: tl.record(model, x, save=function),
    }
    if NAMED[name]:
        taken = tl.record(model, x, save=NAMED[name], graph=False)
        names = list(dict.fromkeys(record.address for record in taken))
        cases["hooks with clone"] = lambda: hooked(model, names, x)
        cases["modules, graph=False"] = lambda: tl.record(model, x, save=NAMED[name], graph=False)
    return cases


def measured(name: str, case: str, base: str = "plain") -> float:
    """Median ratio of one case in an interleaved run, and the table of all of them."""
    cases = cases_for(name)
    timings = interleave(cases, rounds=ROUNDS)
    print("\n" + table(name, timings))
    if base == "plain":
        return timings[case].ratio
    pair = {base: cases[base], case: cases[case]}
    return interleave(pair, rounds=ROUNDS)[case].ratio


@pytest.mark.parametrize("name", SPARSE)
def test_a_record_of_functions_costs_little_beside_the_forward(
    name: str, request: pytest.FixtureRequest
) -> None:
    if not is_measuring(request):
        interleave(cases_for(name), rounds=2, warmup=0)
        return
    assert_ratio(lambda: measured(name, "record, graph=False"), SPARSE[name])


@pytest.mark.parametrize("name", LOGGED)
def test_the_logged_graph_costs_little_more(name: str, request: pytest.FixtureRequest) -> None:
    if not is_measuring(request):
        pytest.skip("the same cases as above; measured by make bench")
    assert_ratio(lambda: measured(name, "record"), LOGGED[name])


@pytest.mark.parametrize("name", ["mlp20", "resnet", "gpt2-4l", "conv8", "lstm"])
def test_module_outputs_cost_what_hand_written_hooks_cost(name: str, request: pytest.FixtureRequest) -> None:
    if not is_measuring(request):
        pytest.skip("the same cases as above; measured by make bench")
    assert_ratio(lambda: measured(name, "modules, graph=False", base="hooks with clone"), 1.05)


def test_six_tensors_of_64_mb_cost_less_than_hooks_that_clone(request: pytest.FixtureRequest) -> None:
    if not is_measuring(request):
        model, x = made("wide")
        assert len(tl.record(model, x[:, :64].contiguous(), save=tl.func("relu"), graph=False)) == 6
        return
    print("\n" + table("wide", interleave(cases_for("wide"), rounds=7)))


def microseconds_per_op(ops: int, rounds: int, *, graph: bool) -> float:
    """What a record adds to a chain of tiny ops, per op, at the speed of machine that the targets mean."""
    model, x = Chain(ops), torch.randn(64)
    cases: dict[str, Callable[[], object]] = {
        "plain": lambda: model(x),
        "record": lambda: tl.record(model, x, save=tl.func("relu"), graph=graph),
    }
    timings = interleave(cases, rounds=rounds, warmup=1)
    plain, recorded = timings["plain"].seconds, timings["record"].seconds
    added = (recorded - plain) / ops * 1e6
    scaled = added * PLAIN_OP / (plain / ops)
    print(f"\nchain of {ops}, graph={graph}: +{added:.1f} us per op, {scaled:.1f} us at 1.7 us per plain op")
    return scaled


@pytest.mark.parametrize(("graph", "target"), [(False, 8.0), (True, 10.0)])
def test_tiny_ops_cost_the_same_at_any_number(
    graph: bool, target: float, request: pytest.FixtureRequest
) -> None:
    if not is_measuring(request):
        microseconds_per_op(200, 2, graph=graph)
        return
    assert_ratio(lambda: microseconds_per_op(10_000, 9, graph=graph), target)
    grown = microseconds_per_op(10_000, 9, graph=graph) / microseconds_per_op(1_000, 21, graph=graph)
    assert_ratio(lambda: grown, 1.3)


def test_arming_a_thousand_modules_takes_half_a_millisecond(request: pytest.FixtureRequest) -> None:
    model = nn.Sequential(*(nn.Identity() for _ in range(1_000)))
    recorder = tl.Recorder(model, save=tl.func("relu"), graph=False)

    def milliseconds() -> float:
        times = []
        for _ in range(51 if is_measuring(request) else 2):
            began = time.perf_counter()
            with recorder.watch():
                pass
            times.append((time.perf_counter() - began) * 1e3)
            recorder.discard()
        return median(times)

    if not is_measuring(request):
        milliseconds()
        return
    slow = slowness()
    print(
        f"\n1,000 modules: {milliseconds():.2f} ms here, {slow:.1f} times slower than where targets were set"
    )
    assert_ratio(lambda: milliseconds() / slow, 0.5)
