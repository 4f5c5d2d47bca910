"""What a full trace costs: beside the plain forward, per op, beside torchlens, and in memory."""

import gc
import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from interleaving import assert_ratio, interleave, is_measuring, table
from reference_models import PLAIN_OP, Chain, made

import tl_integrations as tl
from tl_integrations.capture.selector import Selector

TARGETS = {"mlp20": 1.7, "resnet": 1.3, "gpt2-4l": 1.35, "conv8": 1.15}
SAVED = {"mlp20": "relu", "resnet": "batch_norm", "gpt2-4l": "addmm", "conv8": "relu"}


def materialised(model: torch.nn.Module, x: object, save: Selector) -> tl.Trace:
    """A trace with every op's label, parents and children worked out."""
    trace = tl.trace(model, x, save=save)
    assert trace.ops[-1].parents
    assert trace.ops[0].children
    return trace


@pytest.mark.parametrize("name", TARGETS)
def test_a_trace_costs_little_beside_the_forward(name: str, request: pytest.FixtureRequest) -> None:
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
        print(table(f"trace {name}", timings))
        return timings["trace"].ratio

    assert_ratio(measured, TARGETS[name])


def microseconds_per_op(ops: int, rounds: int) -> float:
    """What tracing adds to a chain of tiny ops, per op, at the speed of machine that the targets mean."""
    model, x = Chain(ops), torch.randn(64)
    cases: dict[str, Callable[[], object]] = {
        "plain": lambda: model(x),
        "trace": lambda: materialised(model, x, tl.func("relu")),
    }
    timings = interleave(cases, rounds=rounds, warmup=1)
    plain, traced = timings["plain"].seconds, timings["trace"].seconds
    added = (traced - plain) / ops * 1e6
    scaled = added * PLAIN_OP / (plain / ops)
    print(f"\ntrace chain of {ops}: +{added:.1f} us per op, {scaled:.1f} us at 1.7 us per plain op")
    return scaled


def test_cost_per_op_is_the_same_for_ten_times_the_ops(request: pytest.FixtureRequest) -> None:
    if not is_measuring(request):
        microseconds_per_op(200, 2)
        return
    assert_ratio(lambda: microseconds_per_op(10_000, 9), 15.0)
    assert_ratio(lambda: microseconds_per_op(10_000, 9) / microseconds_per_op(1_000, 21), 1.3)


def test_a_trace_of_many_ops_is_small_and_leaves_nothing(request: pytest.FixtureRequest) -> None:
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
    assert held / ops <= 2_500, f"{held / ops:.0f} bytes per op, 25 MB for 10,000"
    assert left <= 0.1 * held, f"{left} of {held} bytes stay after the trace is dropped"


BESIDE_TORCHLENS = """
import json, sys, time, warnings
from statistics import median
warnings.simplefilter("ignore")
sys.path[:0] = {paths!r}
import torch
torch.set_num_threads(1)
from reference_models import made
import tl_integrations as tl
model, x = made("mlp20")
def timed(run, rounds):
    run()
    times = []
    for _ in range(rounds):
        start = time.perf_counter(); run(); times.append(time.perf_counter() - start)
    return median(times)
def ours():
    trace = tl.trace(model, x, save=tl.func("relu"))
    return trace.ops[-1].parents, trace.ops[0].children
mine = timed(ours, 21)
import torchlens
theirs = timed(lambda: torchlens.trace(model, x, save=torchlens.func("relu")), 5)
print(json.dumps(theirs / mine))
"""


def test_a_trace_is_many_times_faster_than_torchlens(request: pytest.FixtureRequest) -> None:
    if not is_measuring(request):
        pytest.skip("runs torchlens, which takes seconds: only with --benchmark-enable")
    tests = Path(__file__).parents[1]
    code = BESIDE_TORCHLENS.format(paths=[str(tests), str(Path(__file__).parent)])
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ratio = json.loads(run.stdout.splitlines()[-1])
    print(f"| trace mlp20 | torchlens by ours | | {ratio:.1f}x | |")
    assert ratio >= 15
