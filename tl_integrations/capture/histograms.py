"""Counts of values by magnitude, read from the bits of the floats: nothing is searched, and NaNs fall out.

The upper bits of a float are its sign, its exponent and the first digits of its mantissa, so they order
values on a fine logarithmic scale. Counting those classes and adding them up to bins costs a tenth of finding
each value among edges, on any device. The edges are the same for every tensor and step, so that histograms
can be compared.
"""

from functools import lru_cache

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tl_integrations.capture.host_numbers import HostNumbers
from tl_integrations.errors import SelectorError

SAMPLE = 16_384
"""Of larger tensors an evenly strided sample of about half as many values is described."""
MOST_BINS = 2048
MOMENTS = 4
"""Numbers before the counts: minimum, maximum, sum, sum of squares."""
_LOWEST, _OCTAVES = -14, 24
"""Edges reach from 2 ** -14 to 2 ** 10 on both sides of 0; the outer bins take what lies beyond."""


def check_bins(bins: int) -> None:
    """Raise SelectorError for a number of bins that cannot be."""
    if not 0 <= bins <= MOST_BINS:
        raise SelectorError(f"A histogram of {bins!r} bins is not made. Use 1 to {MOST_BINS}; 64 is usual.")


def counted(sample: Tensor, bins: int) -> Tensor:
    """Moments and counts of the finite values, on their device.

    Args:
        sample: 1-D float32 or float64, with at least one value.
        bins: At least 1.

    Returns: float64 of `MOMENTS + bins` numbers; the counts are all 0 where nothing is finite.
    """
    classes = (_single(sample).view(torch.int32) >> _shift(bins)).long() + _half(bins)
    places = _bins_of_classes_on(sample.device, bins)[classes]
    # Adding ones where they belong: torch.bincount would wait for the largest place.
    counts = torch.zeros(bins + 1, dtype=torch.float64, device=sample.device)
    counts.scatter_add_(0, places, counts.new_ones(1).expand(len(places)))
    return torch.cat([_moments(sample), counts[:bins]])


def counted_on_host(read: HostNumbers, bins: int) -> list[float]:
    """What `counted` gives, of values in host memory that are all finite."""
    classes = _single(read.values).numpy().view(np.int32) >> _shift(bins)
    classes += _half(bins)
    counts: list[float] = np.bincount(_bins_of_classes(bins)[classes], minlength=bins)[:bins].tolist()
    return [read.low, read.high, read.total, read.squares, *counts]


def sampled(values: Tensor) -> Tensor:
    """A vector itself, or an evenly strided sample of a large one, copied together."""
    if values.numel() <= SAMPLE:
        return values
    # An odd stride meets every feature of the usual even widths, where an even one would miss most.
    return values[:: (2 * values.numel() // SAMPLE) | 1].contiguous()


def _single(values: Tensor) -> Tensor:
    """The values in float32; finite ones beyond it become its largest."""
    if values.dtype == torch.float32:
        return values
    single, largest = values.float(), torch.finfo(torch.float32).max
    return torch.where(values.isfinite() & single.isinf(), single.sign() * largest, single)


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
    exact = np.exp2(np.linspace(_LOWEST, _LOWEST + _OCTAVES, count)).astype(np.float32)
    unit = 1 << _shift(bins)
    rounded = (exact.view(np.int32) + unit // 2) // unit * unit
    found: list[float] = rounded.astype(np.int32).view(np.float32).tolist()
    return found


def _shift(bins: int) -> int:
    """Bits that a class leaves out: 2,048 classes, or 32,768 for narrow bins."""
    return 21 if bins <= 64 else 17


def _half(bins: int) -> int:
    """Number of classes of negative values, which come first; they start at minus this number."""
    return 1 << (31 - _shift(bins))


@lru_cache(maxsize=64)
def _bins_of_classes(bins: int) -> npt.NDArray[np.int64]:
    """For each class its bin; `bins`, which is thrown away, for NaN and infinity."""
    # In numpy, so that no mode or default device of torch's that is on now is in it for good.
    middles = (np.arange(_half(bins)) << _shift(bins)) + (1 << (_shift(bins) - 1))
    sizes = middles.astype(np.int32).view(np.float32)
    inner = np.array(edges(bins)[1:-1], dtype=np.float32)
    places = np.searchsorted(inner, np.concatenate([-sizes, sizes]), side="right")
    return np.where(np.isfinite(np.concatenate([sizes, sizes])), places, bins).astype(np.int64)


@lru_cache(maxsize=64)
def _bins_of_classes_on(device: torch.device, bins: int) -> Tensor:
    return torch.from_numpy(_bins_of_classes(bins)).to(device)


def _moments(values: Tensor) -> Tensor:
    finite = values.isfinite()
    clean = torch.where(finite, values, 0)
    low = torch.where(finite, values, torch.inf).amin()
    high = torch.where(finite, values, -torch.inf).amax()
    return torch.stack([low, high, clean.sum(), torch.dot(clean, clean)]).double()
