"""Counts by the bits of floats against counts by comparison."""

from itertools import pairwise

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tl_integrations.capture.histograms import (
    MOMENTS,
    MOST_BINS,
    SAMPLE,
    check_bins,
    counted,
    counted_on_host,
    edges,
    sampled,
)
from tl_integrations.capture.host_numbers import host_numbers
from tl_integrations.errors import SelectorError

floats = st.lists(st.floats(width=32, allow_subnormal=True), min_size=1, max_size=60)


def by_comparison(values: Tensor, bins: int) -> list[int]:
    """The naive twin: each finite value between the edges that hold it, outer bins open, -0 on the left."""
    inner = np.array(edges(bins)[1:-1], dtype=np.float32)
    found = [0] * bins
    for value in values.float().tolist():
        if np.isfinite(value):
            negative = np.signbit(value)
            found[int(np.searchsorted(inner, np.float32(value), side="left" if negative else "right"))] += 1
    return found


@given(floats, st.sampled_from([1, 2, 3, 5, 16, 64, 127, 128, 129, 500, MOST_BINS]))
def test_counts_equal_counts_by_comparison(values: list[float], bins: int) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)
    moments = counted(tensor, bins)
    assert moments[MOMENTS:].tolist() == by_comparison(tensor, bins)


@given(floats)
def test_moments_are_those_of_the_finite_values(values: list[float]) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)
    finite = tensor[tensor.isfinite()].double()
    low, high, total, squares = counted(tensor, 4)[:MOMENTS].tolist()
    if len(finite):
        assert (low, high) == (finite.min().item(), finite.max().item())
        if finite.abs().max() < 1e15:
            assert total == pytest.approx(finite.sum().item(), rel=1e-4, abs=1e-4 * finite.abs().sum().item())
            assert squares == pytest.approx((finite**2).sum().item(), rel=1e-4)


@pytest.mark.parametrize("bins", [1, 2, 3, 4, 7, 64, 127, 128, 129, 512, 1000, MOST_BINS])
def test_edges_rise_and_do_not_depend_on_values(bins: int) -> None:
    found = edges(bins)
    assert len(found) == bins + 1 and all(a < b for a, b in pairwise(found))
    assert found[0] == -1024 and found[-1] == 1024


def test_edges_are_nearly_even_in_magnitude() -> None:
    positive = np.array([edge for edge in edges(64) if edge > 0])
    steps = np.diff(np.log2(positive))
    assert positive[0] == 2.0**-14 and steps.max() / steps.min() < 2.1


def test_large_float64_values_are_counted_at_the_ends() -> None:
    counts = counted(torch.tensor([1e300, -1e300, float("nan"), float("inf")], dtype=torch.float64), 8)
    assert counts[MOMENTS:].tolist() == [1, 0, 0, 0, 0, 0, 0, 1] and counts[1] == 1e300


def test_nothing_finite_is_no_count() -> None:
    assert counted(torch.tensor([float("nan"), float("-inf")]), 4)[MOMENTS:].sum() == 0


def test_a_large_tensor_is_sampled_evenly_without_a_word() -> None:
    values = torch.linspace(-1, 2, 5 * SAMPLE)
    few = sampled(values)
    assert SAMPLE / 3 < len(few) <= SAMPLE
    low, high, total, squares, *counts = counted(few, 2).tolist()
    assert sum(counts) == len(few) and counts[0] == pytest.approx(len(few) / 3, abs=2)
    assert (low, high) == pytest.approx((-1, 2), abs=1e-3)
    # The mean of what was counted is that of the whole.
    assert total / sum(counts) == pytest.approx(0.5, abs=1e-3)
    assert squares / sum(counts) == pytest.approx(1.0, abs=1e-3)
    everything = torch.ones(SAMPLE)
    assert sampled(everything) is everything


@pytest.mark.parametrize("bins", [-1, MOST_BINS + 1])
def test_a_number_of_bins_that_cannot_be_is_refused(bins: int) -> None:
    with pytest.raises(SelectorError, match=str(bins)):
        check_bins(bins)


@pytest.mark.parametrize("width", [2, 64, 256, 1000])
def test_a_sample_meets_every_feature(width: int) -> None:
    features = 2.0 ** torch.linspace(-12, 8, width)
    values = features.expand(10 * SAMPLE // width, width).reshape(-1)
    some, all_values = (counted(each, 16)[MOMENTS:] for each in (sampled(values), features))
    assert ((some > 0) == (all_values > 0)).all()


@given(floats, st.sampled_from([1, 5, 64, 129]))
def test_the_host_counts_the_same_in_its_own_way(values: list[float], bins: int) -> None:
    tensor = torch.tensor(values, dtype=torch.float32)
    read = host_numbers(tensor)
    if read is not None:
        here, everywhere = counted_on_host(read, bins), counted(tensor, bins).tolist()
        assert here[MOMENTS:] == everywhere[MOMENTS:] and here[:2] == everywhere[:2]
        assert here[2:MOMENTS] == pytest.approx(everywhere[2:MOMENTS], rel=1e-5, abs=1e-5)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("size", [1, 1000, 200_000])
def test_a_cuda_device_counts_the_same(size: int) -> None:
    values = torch.randn(size, generator=torch.Generator().manual_seed(0))
    values[0] = float("nan")
    here, there = counted(values, 64), counted(values.cuda(), 64).cpu()
    assert torch.allclose(here, there, rtol=1e-4, equal_nan=True)
