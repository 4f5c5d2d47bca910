"""What watching costs per op as a model grows from 10 tiny ops to 10,000, for every way to watch it."""

from collections.abc import Callable

import pytest
import torch
import torchlens_runs
from interleaving import Timing, interleave, is_measuring, timing
from other_libraries import hooked
from reference_models import ModuleChain
from results import Report

import tl_integrations as tl

SECTION = "scaling"
TABLE = "Every second op of a chain kept, time of one op; ratios to the plain forward"
ROUNDS = {10: 101, 100: 51, 1_000: 15, 10_000: 5}
TORCHLENS_UP_TO = 1_000
"""Beyond it a single trace by torchlens takes a minute."""


def cases_for(ops: int) -> dict[str, Callable[[], object]]:
    model, x = ModuleChain(ops).eval(), torch.randn(64)
    names = [f"acts.{k}" for k in range(ops // 2)]
    relu = tl.func("relu")
    return {
        "plain": lambda: model(x),
        "hooks with clone": lambda: hooked(model, names, x),
        "record, graph=False": lambda: tl.record(model, x, save=relu, graph=False),
        "record": lambda: tl.record(model, x, save=relu),
        "trace": lambda: tl.trace(model, x, save=relu).ops[-1].parents,
    }


def per_op(found: Timing, ops: int) -> Timing:
    return Timing(seconds=found.seconds / ops, ratio=found.ratio, low=found.low, high=found.high)


@pytest.mark.parametrize("ops", ROUNDS)
def test_cost_per_op_from_10_ops_to_10_000(ops: int, request: pytest.FixtureRequest, report: Report) -> None:
    rounds = ROUNDS[ops]
    if not is_measuring(request):
        ops, rounds = min(ops, 100), 2
        model, x = ModuleChain(ops).eval(), torch.randn(64)
        assert len(tl.record(model, x, save=tl.func("relu"), graph=False)) == ops // 2
    timings = interleave(cases_for(ops), rounds=rounds, warmup=1)
    report.timings(TABLE, f"{ops:,} ops", {way: per_op(found, ops) for way, found in timings.items()})


def test_cost_per_op_of_torchlens(request: pytest.FixtureRequest, report: Report) -> None:
    """In a process of its own, so its ratios are to the plain forward of that process, timed first."""
    if not is_measuring(request):
        pytest.skip("starts a process with torchlens; test_torchlens_runs.py does it small")
    sizes = ",".join(str(ops) for ops in ROUNDS if ops <= TORCHLENS_UP_TO)
    for size, ways in torchlens_runs.asked("scaling", 3, sizes).items():
        ops = int(size)
        timings = {
            way: per_op(timing(times, ways["plain"]), ops) for way, times in ways.items() if way != "plain"
        }
        report.timings(TABLE, f"{ops:,} ops", timings)
