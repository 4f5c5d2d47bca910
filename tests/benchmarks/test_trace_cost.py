"""What a full trace costs: beside the plain forward, per op, beside torchlens, and in memory."""

import gc
import tracemalloc
from collections.abc import Callable

import pytest
import torch
import torchlens_runs
from interleaving import assert_ratio, interleave, is_measuring
from reference_models import PLAIN_OP, SAVED, Chain, made
from results import Report, Target

import tl_integrations as tl
from tl_integrations.capture.selector import Selector

SECTION = "trace"
TABLE = "A trace with labels, parents and children worked out, ratios to the plain forward"
PER_OP = "Added per tiny op of a chain, at 1.7 us per plain op; ratios to a plain op"
TARGETS = {"mlp20": 1.7, "resnet": 1.3, "gpt2-4l": 1.35, "conv8": 1.15}


def materialised(model: torch.nn.Module, x: object, save: Selector) -> tl.Trace:
    """A trace with every op's label, parents and children worked out."""
    trace = tl.trace(model, x, save=save)
    assert trace.ops[-1].parents
    assert trace.ops[0].children
    return trace


@pytest.mark.parametrize("name", TARGETS)
def test_a_trace_costs_little_beside_the_forward(
    name: str, request: pytest.FixtureRequest, report: Report
) -> None:
    model, x = made(name)
    save = tl.func(SAVED[name])
    cases: dict[str, Callable[[], object]] = {
        "plain": lambda: model(x),
        "trace": lambda: materialised(model, x, save),
    }
    if not is_measuring(request):
        interleave(cases, rounds=2, warmup=0)
        return

    def measured() -> float:
        timings = interleave(cases, rounds=21)
        report.timings(TABLE, name, timings, {"trace": Target(limit=TARGETS[name])})
        return timings["trace"].ratio

    assert_ratio(measured, TARGETS[name])


def microseconds_per_op(report: Report, ops: int, rounds: int) -> float:
    """What tracing adds to a chain of tiny ops, per op, at the speed of machine that the targets mean."""
    model, x = Chain(ops), torch.randn(64)
    cases: dict[str, Callable[[], object]] = {
        "plain": lambda: model(x),
        "trace": lambda: materialised(model, x, tl.func("relu")),
    }
    timings = interleave(cases, rounds=rounds, warmup=1)
    plain, traced = timings["plain"].seconds, timings["trace"].seconds
    added = (traced - plain) / plain
    limit = Target(limit=15e-6, of="value")
    report.figure(PER_OP, f"{ops:,} ops", "trace", added * PLAIN_OP, ratio=added, target=limit)
    return added * PLAIN_OP * 1e6


def test_cost_per_op_is_the_same_for_ten_times_the_ops(
    request: pytest.FixtureRequest, report: Report
) -> None:
    if not is_measuring(request):
        microseconds_per_op(report, 200, 2)
        return

    def growth() -> float:
        grown = microseconds_per_op(report, 10_000, 9) / microseconds_per_op(report, 1_000, 21)
        report.figure(PER_OP, "10,000 ops over 1,000", "trace", ratio=grown, target=Target(limit=1.3))
        return grown

    assert_ratio(lambda: microseconds_per_op(report, 10_000, 9), 15.0)
    assert_ratio(growth, 1.3)


def test_a_trace_of_many_ops_is_small_and_leaves_nothing(
    request: pytest.FixtureRequest, report: Report
) -> None:
    ops = 10_000 if is_measuring(request) else 1_000
    model, x = Chain(ops), torch.randn(64)
    materialised(model, x, tl.label("relu_1"))
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        trace: tl.Trace | None = materialised(model, x, tl.label("relu_1"))
        gc.collect()
        held = tracemalloc.get_traced_memory()[0] - before
        assert trace is not None and trace.num_ops == ops
        del trace
        gc.collect()
        left = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    limit = Target(limit=2_500 * ops, of="value")
    report.figure("Memory beside the tensors", f"{ops:,} ops", "trace", held, unit="B", target=limit)
    assert held / ops <= 2_500, f"{held / ops:.0f} bytes per op, 25 MB for 10,000"
    assert left <= 0.1 * held, f"{left} of {held} bytes stay after the trace is dropped"


def test_a_trace_is_many_times_faster_than_torchlens(request: pytest.FixtureRequest, report: Report) -> None:
    if not is_measuring(request):
        pytest.skip("starts a process with torchlens; test_torchlens_runs.py does it small")
    ratio = torchlens_runs.asked("trace-by-ours", 5)
    target = Target(limit=15, at_least=True)
    report.figure("torchlens by ours, both in one process", "mlp20", "trace", ratio=ratio, target=target)
    assert ratio >= 15, f"measured {ratio:.1f} times ours, target 15"
