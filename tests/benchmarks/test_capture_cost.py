"""What a sparse record costs: beside the plain forward, beside hand-written hooks, per op, and to arm."""

import time
from collections.abc import Callable, Sequence
from statistics import median

import pytest
import torch
from interleaving import assert_ratio, interleave, is_measuring
from other_libraries import hooked
from reference_models import NAMED, PLAIN_OP, SAVED, Chain, made, slowness
from results import Report, Target
from torch import nn

import tl_integrations as tl

SECTION = "capture"
TABLE = "Our ways and hand-written hooks, ratios to the plain forward"
SPARSE = {"mlp20": 1.25, "resnet": 1.15, "gpt2-4l": 1.15, "conv8": 1.10}
LOGGED = {"mlp20": 1.5, "resnet": 1.2, "gpt2-4l": 1.2, "conv8": 1.10}
PER_OP = "Added per tiny op of a chain, at 1.7 us per plain op; ratios to a plain op"
ROUNDS = 21


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
    if name in NAMED:
        taken = tl.record(model, x, save=NAMED[name], graph=False)
        names = list(dict.fromkeys(record.address for record in taken))
        cases["hooks with clone"] = lambda: hooked(model, names, x)
        cases["modules, graph=False"] = lambda: tl.record(model, x, save=NAMED[name], graph=False)
    return cases


def measured(
    report: Report,
    table: str,
    name: str,
    case: str,
    *,
    target: float,
    base: str = "plain",
    beside: Sequence[str] | None = None,
) -> Callable[[], float]:
    """A measurement of one case over the base, in turn with others (None: with all that there are)."""

    def measure() -> float:
        found = cases_for(name)
        names = dict.fromkeys((base, case, *(found if beside is None else beside)))
        timings = interleave({way: found[way] for way in names}, rounds=ROUNDS)
        report.timings(table, name, timings, {case: Target(limit=target)})
        return timings[case].ratio

    return measure


@pytest.mark.parametrize("name", SPARSE)
def test_a_record_of_functions_costs_little_beside_the_forward(
    name: str, request: pytest.FixtureRequest, report: Report
) -> None:
    if not is_measuring(request):
        interleave(cases_for(name), rounds=2, warmup=0)
        return
    assert_ratio(measured(report, TABLE, name, "record, graph=False", target=SPARSE[name]), SPARSE[name])


@pytest.mark.parametrize("name", LOGGED)
def test_the_logged_graph_costs_little_more(
    name: str, request: pytest.FixtureRequest, report: Report
) -> None:
    if not is_measuring(request):
        pytest.skip("the same cases as above; measured by make bench")
    table = "With the logged graph, ratios to the plain forward"
    assert_ratio(measured(report, table, name, "record", target=LOGGED[name], beside=()), LOGGED[name])


@pytest.mark.parametrize("name", ["mlp20", "resnet", "gpt2-4l", "conv8", "lstm"])
def test_module_outputs_cost_what_hand_written_hooks_cost(
    name: str, request: pytest.FixtureRequest, report: Report
) -> None:
    if not is_measuring(request):
        pytest.skip("the same cases as above; measured by make bench")
    table, base = "Module selectors, ratios to hand-written hooks that clone", "hooks with clone"
    measure = measured(report, table, name, "modules, graph=False", target=1.05, base=base, beside=())
    assert_ratio(measure, 1.05)


def test_six_tensors_of_64_mb_cost_less_than_hooks_that_clone(
    request: pytest.FixtureRequest, report: Report
) -> None:
    if not is_measuring(request):
        model, x = made("wide")
        assert len(tl.record(model, x[:, :64].contiguous(), save=tl.func("relu"), graph=False)) == 6
        return
    report.timings(TABLE, "wide", interleave(cases_for("wide"), rounds=7, warmup=1))


def microseconds_per_op(report: Report, ops: int, rounds: int, *, graph: bool, target: float = 8.0) -> float:
    """What a record adds to a chain of tiny ops, per op, at the speed of machine that the targets mean."""
    model, x = Chain(ops), torch.randn(64)
    cases: dict[str, Callable[[], object]] = {
        "plain": lambda: model(x),
        "record": lambda: tl.record(model, x, save=tl.func("relu"), graph=graph),
    }
    timings = interleave(cases, rounds=rounds, warmup=1)
    plain, recorded = timings["plain"].seconds, timings["record"].seconds
    added = (recorded - plain) / plain
    limit = Target(limit=target * 1e-6, of="value")
    way = f"record, graph={graph}"
    report.figure(PER_OP, f"{ops:,} ops", way, added * PLAIN_OP, ratio=added, target=limit)
    return added * PLAIN_OP * 1e6


@pytest.mark.parametrize(("graph", "target"), [(False, 8.0), (True, 10.0)])
def test_tiny_ops_cost_the_same_at_any_number(
    graph: bool, target: float, request: pytest.FixtureRequest, report: Report
) -> None:
    if not is_measuring(request):
        microseconds_per_op(report, 200, 2, graph=graph)
        return

    def per_op(ops: int, rounds: int) -> float:
        return microseconds_per_op(report, ops, rounds, graph=graph, target=target)

    assert_ratio(lambda: per_op(10_000, 9), target)
    grown = per_op(10_000, 9) / per_op(1_000, 21)
    name = f"record, graph={graph}"
    report.figure(PER_OP, "10,000 ops over 1,000", name, ratio=grown, target=Target(limit=1.3))
    assert_ratio(lambda: grown, 1.3)


def test_arming_a_thousand_modules_takes_half_a_millisecond(
    request: pytest.FixtureRequest, report: Report
) -> None:
    model = nn.Sequential(*(nn.Identity() for _ in range(1_000)))
    recorder = tl.Recorder(model, save=tl.func("relu"), graph=False)

    def seconds() -> float:
        times = []
        for _ in range(51 if is_measuring(request) else 2):
            began = time.perf_counter()
            with recorder.watch():
                pass
            times.append(time.perf_counter() - began)
            recorder.discard()
        return median(times)

    if not is_measuring(request):
        seconds()
        return
    slow = slowness()

    def measure() -> float:
        scaled = seconds() / slow
        target = Target(limit=0.5e-3, of="value")
        report.figure(
            "Arming, at 1.7 us per plain op", "1,000 modules", "arm and disarm", scaled, target=target
        )
        return scaled * 1e3

    assert_ratio(measure, 0.5)
