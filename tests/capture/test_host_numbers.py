"""Numbers read in host memory against those of float64, and against the way that holds everywhere."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tl_integrations.capture.host_numbers import CHUNK, STATISTICS, HostNumbers, host_numbers
from tl_integrations.capture.statistics import NAMES, Summariser, collect
from tl_integrations.options import SummaryOptions


def read(values: Tensor) -> HostNumbers:
    found = host_numbers(values)
    assert found is not None
    return found


def exact(values: Tensor) -> dict[str, float]:
    """The naive twin."""
    wide = values.double()
    return {
        "mean": wide.mean().item(),
        "std": wide.std(correction=0).item(),
        "absmax": wide.abs().max().item(),
        "zero_fraction": (wide == 0).double().mean().item(),
        "nonfinite_fraction": 0.0,
        "min": wide.min().item(),
        "max": wide.max().item(),
    }


def normal(size: int, scale: float = 1.0, shift: float = 0.0) -> Tensor:
    return torch.randn(size, generator=torch.Generator().manual_seed(0)) * scale + shift


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([3.0]),
        torch.zeros(5),
        torch.full((1000,), 0.1),
        normal(1000),
        normal(1000).relu(),
        normal(1000, scale=0.01, shift=1000.0),
        normal(1000, shift=1.7),
        normal(1000, scale=1e17),
        normal(1000, scale=1e-18),
        normal(CHUNK - 1),
        normal(CHUNK + 1),
        normal(10 * CHUNK + 7, shift=0.5),
        normal(1000).double(),
    ],
    ids=lambda v: f"{v.dtype}-{len(v)}-{v.mean():.2g}-{v.std(correction=0):.2g}",
)
def test_numbers_equal_those_of_float64(values: Tensor) -> None:
    numbers = read(values)
    scale = numbers.high - numbers.low + abs(numbers.low)
    for name, expected in exact(values).items():
        assert STATISTICS[name](numbers) == pytest.approx(expected, rel=3e-6, abs=1e-6 * scale), name


@given(st.lists(st.floats(-1e6, 1e6, width=32), min_size=1, max_size=50))
def test_the_host_and_every_other_place_say_the_same(values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)
    summariser = Summariser(SummaryOptions(statistics=NAMES, histogram_bins=16))
    (here,) = collect([summariser.measure(tensor)])
    there = summariser._everywhere(tensor).tolist()
    assert here is not None and here[1] is not None
    absmax = tensor.abs().max().item()
    assert list(here[0].values()) == pytest.approx(there[: len(NAMES)], rel=1e-5, abs=1e-5 * absmax)
    assert list(here[1].counts) == there[len(NAMES) + 4 :]


@pytest.mark.parametrize(
    "values",
    [
        torch.tensor([]),
        torch.tensor([1.0, math.nan]),
        torch.tensor([1.0, math.inf]),
        torch.tensor([3e38, 3e38]),
        torch.empty(3, device="meta"),
        torch.tensor([1 + 2j]).conj().imag,
    ],
    ids=["empty", "nan", "infinite", "overflowing", "meta", "negated lazily"],
)
def test_what_needs_care_is_left_to_the_other_way(values: Tensor) -> None:
    assert host_numbers(values) is None


def test_overflowing_squares_do_not_reach_the_standard_deviation() -> None:
    values = torch.tensor([1e19, -1e19, 3e19, -3e19])
    numbers = read(values)
    assert numbers.squares == math.inf and STATISTICS["std"](numbers) == math.inf
    assert STATISTICS["mean"](numbers) == 0 and STATISTICS["absmax"](numbers) == pytest.approx(3e19)


def test_a_default_device_or_mode_of_the_moment_does_not_stay_in_the_counts() -> None:
    summariser = Summariser(SummaryOptions(histogram_bins=37))
    values = torch.tensor([1.0, 2.0, 2.0])
    with torch.device("meta"):
        first = collect([summariser.measure(values)])
    assert first == collect([summariser.measure(values)])


def test_measuring_leaves_values_and_version_alone() -> None:
    values = normal(100)
    before = values.clone(), values._version
    Summariser(SummaryOptions(statistics=NAMES, histogram_bins=8)).measure(values)
    assert torch.equal(values, before[0]) and values._version == before[1]
