"""The same tensors kept by other libraries, in the same process and in turn; torchlens in its own process,
since it leaves torch's functions wrapped."""

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torchlens_runs
from interleaving import assert_ratio, interleave, is_measuring, timing
from other_libraries import LIBRARIES, by_fx, hooked
from reference_models import NAMED, SAVED, Mlp, made
from results import Report, Target

import tl_integrations as tl

SECTION = "capture"
TABLE = "Other libraries on the same tensors, ratios to the plain forward"
MODELS = ("mlp20", "resnet", "conv8", "gpt2-4l", "lstm")


def addresses(name: str, model: torch.nn.Module, x: Any) -> list[str]:
    taken = tl.record(model, x, save=NAMED[name], graph=False)
    return list(dict.fromkeys(record.address for record in taken))


def peers(name: str, report: Report) -> dict[str, Callable[[], object]]:
    """Every way that works for this model; what fails on it is reported as that."""
    model, x = made(name)
    names = addresses(name, model, x)
    function = tl.func(SAVED[name])
    cases: dict[str, Callable[[], object]] = {
        "plain": lambda: model(x),
        "hooks with clone": lambda: hooked(model, names, x),
        "modules, graph=False": lambda: tl.record(model, x, save=NAMED[name], graph=False),
        "record, graph=False": lambda: tl.record(model, x, save=function, graph=False),
        "record": lambda: tl.record(model, x, save=function),
        "trace": lambda: tl.trace(model, x, save=function).ops[-1].parents,
    }
    for label, make in LIBRARIES.items():
        try:
            run = make(model, names)
            run(x)
        except Exception as error:
            report.failed(TABLE, name, label, error)
        else:
            cases[label] = lambda run=run: run(x)  # type: ignore[misc]
    return cases


@pytest.mark.parametrize("name", MODELS)
def test_other_libraries_on_the_same_tensors(
    name: str, request: pytest.FixtureRequest, report: Report
) -> None:
    if not is_measuring(request):
        model, x = made(name)
        assert len(addresses(name, model, x)) > 0
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        report.timings(TABLE, name, interleave(peers(name, report), rounds=15))


def test_fx_and_hooks_keep_the_tensors_that_ours_keeps() -> None:
    model, x = Mlp(4, 3).eval(), torch.randn(2, 4)
    names = [f"layers.{k}" for k in range(3)]
    ours = [record.out for record in tl.record(model, x, save="layers.*", graph=False)]
    _, by_rewriting = by_fx(model, names)(x)  # type: ignore[misc]
    for kept in (hooked(model, names, x), by_rewriting):
        assert all(torch.equal(own, other) for own, other in zip(ours, kept, strict=True))


def test_torchlens_on_the_same_tensors(request: pytest.FixtureRequest, report: Report) -> None:
    """In a process of its own, so its ratios are to the plain forward of that process, timed first."""
    if not is_measuring(request):
        pytest.skip("starts a process with torchlens; test_torchlens_runs.py does it small")
    for name, ways in torchlens_runs.asked("capture", 5, ",".join(MODELS)).items():
        timings = {way: timing(times, ways["plain"]) for way, times in ways.items() if way != "plain"}
        report.timings(TABLE, name, timings)


def test_a_record_is_eight_times_faster_than_with_torchlens(
    request: pytest.FixtureRequest, report: Report
) -> None:
    if not is_measuring(request):
        pytest.skip("starts a process with torchlens; test_torchlens_runs.py does it small")

    def measured() -> float:
        factor: float = torchlens_runs.asked("record-by-ours", 7)
        target = Target(limit=8, at_least=True)
        report.figure(
            "torchlens by ours, both in one process", "mlp20", "record", ratio=factor, target=target
        )
        return 8 / factor

    assert_ratio(measured, 1.0)
