"""Timing on a shared machine: cases in turn within one process, medians of ratios to the first."""

import gc
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from statistics import median, quantiles

import pytest


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """One case of an interleaved run."""

    seconds: float
    """Median of one call."""
    ratio: float
    """Median over rounds of its time by the first case's time in that round."""
    low: float
    """First quartile of those ratios."""
    high: float
    """Third quartile."""


def interleave(
    cases: Mapping[str, Callable[[], object]], rounds: int = 15, warmup: int = 2, inner: int = 1
) -> dict[str, Timing]:
    """Time the cases in turn, the order reversed every other round; the first is the base.

    Args:
        cases: What to run, by name.
        rounds: Counted calls of each.
        warmup: Calls of each before.
        inner: Runs per call, for cases too short for the clock.
    """
    names = list(cases)
    for _ in range(warmup):
        for name in names:
            cases[name]()
    times: dict[str, list[float]] = {name: [] for name in names}
    collecting = gc.isenabled()
    gc.disable()
    try:
        for round_number in range(rounds):
            for name in names if round_number % 2 == 0 else reversed(names):
                times[name].append(_seconds(cases[name], inner))
            gc.collect(0)
    finally:
        if collecting:
            gc.enable()
    return {name: timing(times[name], times[names[0]]) for name in names}


def table(title: str, timings: Mapping[str, Timing]) -> str:
    """The timings as rows of a Markdown table."""
    rows = [
        f"| {title} | {name} | {t.seconds * 1e3:.3f} ms | {t.ratio:.3f}x | {t.low:.3f}-{t.high:.3f} |"
        for name, t in timings.items()
    ]
    return "\n".join(rows)


def is_measuring(request: pytest.FixtureRequest) -> bool:
    """Whether this is `make bench`, which asserts ratios, and not the suite, which runs the code small."""
    return bool(request.config.getoption("--benchmark-enable"))


def assert_ratio(measure: Callable[[], float], target: float) -> float:
    """Assert that a measured ratio meets its target within 10 %, measuring once more if it does not."""
    ratio = measure()
    if ratio > target * 1.1:
        ratio = min(ratio, measure())
    assert ratio <= target * 1.1, f"measured {ratio:.3f}x, target {target}x"
    return ratio


def _seconds(case: Callable[[], object], inner: int) -> float:
    began = time.perf_counter()
    for _ in range(inner):
        case()
    return (time.perf_counter() - began) / inner


def timing(times: list[float], base: list[float]) -> Timing:
    """Sum up a case's times, round by round beside those of the first."""
    ratios = [own / other for own, other in zip(times, base, strict=True)]
    low, _, high = quantiles(ratios, n=4)
    return Timing(seconds=median(times), ratio=median(ratios), low=low, high=high)
