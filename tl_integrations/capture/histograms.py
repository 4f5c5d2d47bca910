"""Counts of values by magnitude, read from the bits of the floats: nothing is searched, and NaNs fall out.

The upper bits of a float are its sign, its exponent and the first digits of its mantissa, so they order
values on a fine logarithmic scale. Counting those classes and adding them up to bins costs a tenth of finding
each value among edges, on any device. The edges are the same for every tensor and step, so that histograms
can be compared.
"""

import math
from functools import lru_cache

import torch
from torch import Tensor

from tl_integrations.errors import SelectorError

SAMPLE = 16_384
"""Larger tensors are counted by an evenly strided sample of about half as many values."""
MOST_BINS = 2048
MOMENTS = 4
"""Numbers before the counts: minimum, maximum, sum, sum of squares."""
_LOWEST, _OCTAVES = -14, 24
"""Edges reach from 2 ** -14 to 2 ** 10 on both sides of 0; the outer bins take what lies beyond."""


def check_bins(bins: int) -> None:
    """Raise SelectorError for a number of bins that cannot be."""
    if not 0 <= bins <= MOST_BINS:
        raise SelectorError(f"A histogram of {bins!r} bins is not made. Use 1 to {MOST_BINS}; 64 is usual.")


def counted(values: Tensor, bins: int) -> Tensor:
    """Moments of all finite values and counts of a sample of them, on their device.

    Args:
        values: 1-D float32 or float64, with at least one value.
        bins: At least 1.

    Returns: float64 of `MOMENTS + bins` numbers; the counts are all 0 where nothing is finite.
    """
    # An odd stride meets every feature of the usual even widths, where an even one would miss most.
    stride = 1 if values.numel() <= SAMPLE else (2 * values.numel() // SAMPLE) | 1
    classes = _classes(values[::stride], _shift(bins))
    number = 2 ** (32 - _shift(bins))
    # bincount is fastest, but on other devices it waits for the largest class.
    tally = torch.bincount if values.device.type == "cpu" else scattered
    by_class = tally(classes, minlength=number).double()
    counts = by_class.new_zeros(bins + 1).index_add_(0, _bins_of_classes(bins, values.device), by_class)
    return torch.cat([_moments(values), counts[:bins]])


def scattered(classes: Tensor, minlength: int) -> Tensor:
    """What `torch.bincount` gives for classes below `minlength`, without waiting for the device."""
    counts = torch.zeros(minlength, dtype=torch.float64, device=classes.device)
    return counts.scatter_add_(0, classes.long(), counts.new_ones(1).expand(len(classes)))


@lru_cache(maxsize=64)
def edges(bins: int) -> tuple[float, ...]:
    """`bins + 1` rising edges, each the smallest value of a class."""
    above, below = bins // 2, bins - bins // 2
    middle = [0.0] if bins > 1 else []
    return (*(-edge for edge in reversed(_side(below, bins))), *middle, *_side(max(above, 1), bins))


def _side(count: int, bins: int) -> list[float]:
    """Positive edges, evenly spaced in logarithm but for rounding to a class."""
    if count == 1:
        return [2.0 ** (_LOWEST + _OCTAVES)]
    exact = torch.linspace(_LOWEST, _LOWEST + _OCTAVES, count, dtype=torch.float64).exp2().float()
    unit = 1 << _shift(bins)
    rounded = (exact.view(torch.int32) + unit // 2) // unit * unit
    found: list[float] = rounded.to(torch.int32).view(torch.float32).tolist()
    return found


def _shift(bins: int) -> int:
    """Bits that a class leaves out: 2,048 classes, or 32,768 for narrow bins."""
    return 21 if bins <= 64 else 17


def _classes(values: Tensor, shift: int) -> Tensor:
    """The class of each value, from 0: negative ones by magnitude, then positive ones by magnitude."""
    single = values.float()
    if values.dtype == torch.float64:
        largest = torch.finfo(torch.float32).max
        single = torch.where(values.isfinite() & single.isinf(), single.sign() * largest, single)
    return (single.view(torch.int32) >> shift).add_(1 << (31 - shift))


@lru_cache(maxsize=64)
def _bins_of_classes(bins: int, device: torch.device) -> Tensor:
    """For each class its bin; `bins`, which is thrown away, for NaN and infinity."""
    shift = _shift(bins)
    half = 1 << (31 - shift)
    middles = (torch.arange(half, dtype=torch.int32) << shift) + (1 << (shift - 1))
    sizes = middles.view(torch.float32)
    inner = torch.tensor(edges(bins)[1:-1], dtype=torch.float32)
    places = torch.bucketize(torch.cat([-sizes, sizes]), inner, right=True)
    places[~torch.cat([sizes, sizes]).isfinite()] = bins
    return places.to(device)


def _moments(values: Tensor) -> Tensor:
    if values.device.type == "cpu" and math.isfinite(total := float(values.sum())):
        low, high = torch.aminmax(values)
        moments = [float(low), float(high), total, float(torch.dot(values, values))]
        return torch.tensor(moments, dtype=torch.float64)
    finite = values.isfinite()
    clean = torch.where(finite, values, 0)
    low = torch.where(finite, values, torch.inf).amin()
    high = torch.where(finite, values, -torch.inf).amax()
    return torch.stack([low, high, clean.sum(), torch.dot(clean, clean)]).double()
