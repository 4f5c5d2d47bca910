"""Numbers and histograms of captured tensors, computed on their device, fetched in one transfer per step.

| dtype          | what is measured                                                       |
|----------------|------------------------------------------------------------------------|
| float          | the values, accumulated in float32 (float64 stays float64)             |
| integer, bool  | the values as float32                                                  |
| complex        | the magnitudes                                                         |
| quantized      | the dequantized values                                                 |
| no elements    | fractions and counts 0, everything else nan                            |

Every statistic is over all values, so a nan among them shows as nan; `nonfinite_fraction` says how many. A
histogram counts finite values. On a CPU the code may branch on values; on other devices it never does, since
that would wait for the device.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from tl_integrations.capture.events import Histogram
from tl_integrations.errors import SelectorError, near_names
from tl_integrations.options import SummaryOptions

DEFAULT = ("mean", "std", "absmax", "zero_fraction", "nonfinite_fraction")
SAMPLE = 65_536
"""Larger tensors are counted into a histogram by an evenly strided sample of about this many values."""
_LOWEST, _HIGHEST = 2.0**-14, 2.0**10
_EXTRA = 4


Numbers = tuple[dict[str, float], Histogram | None]


@dataclass(frozen=True, slots=True)
class Measured:
    """One tensor's numbers, still on its device."""

    values: Tensor
    """1-D float64: the statistics; then, with a histogram, minimum, maximum, sum, squares and the counts."""
    names: tuple[str, ...]
    bins: int


def _mean(v: Tensor) -> Tensor:
    return v.mean()


def _std(v: Tensor) -> Tensor:
    return torch.std(v, correction=0)


def _absmax(v: Tensor) -> Tensor:
    low, high = torch.aminmax(v)
    highest: Tensor = torch.maximum(-low, high)
    return highest


def _zero_fraction(v: Tensor) -> Tensor:
    return (v.numel() - torch.count_nonzero(v)) / v.numel()


def _nonfinite_fraction(v: Tensor) -> Tensor:
    # A finite sum needs finite values, at a sixteenth of the cost of looking at each; an overflowing sum
    # of finite values only leads to the careful count.
    if v.device.type == "cpu" and math.isfinite(float(v.sum())):
        return torch.zeros((), dtype=torch.float64)
    return torch.isfinite(v).logical_not().to(torch.float64).mean()


def _rms(v: Tensor) -> Tensor:
    return v.square().mean().sqrt()


def _median(v: Tensor) -> Tensor:
    return _quantile(v, 0.5)


def _quantile(v: Tensor, q: float) -> Tensor:
    return torch.quantile(v[:: 1 + v.numel() // SAMPLE].float(), q)


_STATISTICS: dict[str, Callable[[Tensor], Tensor]] = {
    "mean": _mean,
    "std": _std,
    "absmax": _absmax,
    "zero_fraction": _zero_fraction,
    "nonfinite_fraction": _nonfinite_fraction,
    "rms": _rms,
    "norm": torch.linalg.vector_norm,
    "min": torch.amin,
    "max": torch.amax,
    "median": _median,
    "p05": lambda v: _quantile(v, 0.05),
    "p95": lambda v: _quantile(v, 0.95),
}
NAMES = tuple(_STATISTICS)


class Summariser:
    """Measures tensors as options say.

    Raises:
        SelectorError: for a statistic that does not exist.
    """

    def __init__(self, options: SummaryOptions) -> None:
        for name in options.statistics:
            if name not in _STATISTICS:
                near = near_names(name, NAMES)
                raise SelectorError(f"No statistic is named {name!r}. {near}Known: {', '.join(NAMES)}.")
        self.names = options.statistics
        self.bins = options.histogram_bins

    def measure(self, tensor: Tensor) -> Measured | None:
        """The tensor's numbers, on its device; None for one that has no values (meta, sparse, nested)."""
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested:
            return None
        with torch.no_grad():
            values = as_measurable(tensor)
            numbers = [self._number(name, values) for name in self.names]
            found = torch.stack(numbers) if numbers else values.new_empty(0, dtype=torch.float64)
            if self.bins:
                found = torch.cat([found, self._counts(values)])
            return Measured(found, self.names, self.bins)

    def _number(self, name: str, values: Tensor) -> Tensor:
        if values.numel() == 0:
            nothing = 0.0 if name.endswith("_fraction") else math.nan
            return torch.full((), nothing, dtype=torch.float64, device=values.device)
        return _STATISTICS[name](values).to(torch.float64)

    def _counts(self, values: Tensor) -> Tensor:
        finite = values[torch.isfinite(values)] if values.device.type == "cpu" else values
        if values.device.type == "cpu" and finite.numel() == 0:
            return torch.zeros(_EXTRA + self.bins, dtype=torch.float64)
        clean = torch.nan_to_num(finite, nan=0.0, posinf=0.0, neginf=0.0)
        low, high = torch.aminmax(clean)
        moments = torch.stack([low, high, clean.sum(), clean.square().sum()]).to(torch.float64)
        sample = finite[:: 1 + finite.numel() // SAMPLE]
        edges = _edges(self.bins, str(values.device))
        places = torch.bucketize(sample.float(), edges[1:-1], right=True)
        weights = torch.isfinite(sample).to(torch.float64)
        counts = torch.zeros(self.bins, dtype=torch.float64, device=values.device)
        return torch.cat([moments, counts.scatter_add_(0, places, weights)])


def collect(measured: Sequence[Measured | None]) -> list[Numbers | None]:
    """Numbers of many tensors on the host, with one transfer per device."""
    fetched = iter(fetch([m.values for m in measured if m is not None]))
    return [None if m is None else _read(m, next(fetched)) for m in measured]


def _read(measured: Measured, numbers: list[float]) -> Numbers:
    statistics = dict(zip(measured.names, numbers))
    if not measured.bins:
        return statistics, None
    low, high, total, squares, *counts = numbers[len(measured.names) :]
    histogram = Histogram(
        edges=tuple(_edges(measured.bins, "cpu").tolist()),
        counts=tuple(int(count) for count in counts),
        minimum=low,
        maximum=high,
        total=total,
        squares=squares,
    )
    return statistics, histogram


def fetch(vectors: Sequence[Tensor]) -> list[list[float]]:
    """Vectors as lists, moved to the host with one transfer per device."""
    by_device: dict[torch.device, list[int]] = {}
    for position, vector in enumerate(vectors):
        by_device.setdefault(vector.device, []).append(position)
    fetched: list[list[float]] = [[] for _ in vectors]
    for positions in by_device.values():
        flat = torch.cat([vectors[p] for p in positions]).tolist()
        start = 0
        for p in positions:
            fetched[p] = flat[start : (start := start + len(vectors[p]))]
    return fetched


def as_measurable(tensor: Tensor) -> Tensor:
    """The values as one float vector, without a copy where their order in memory allows."""
    values = tensor.detach()
    if values.is_quantized:
        values = values.dequantize()
    if values.is_complex():
        values = values.abs()
    if values.dtype not in (torch.float32, torch.float64):
        values = values.to(torch.float32)
    if values.is_contiguous():
        return values.view(-1)
    if values.dim() == 4 and values.is_contiguous(memory_format=torch.channels_last):
        return values.permute(0, 2, 3, 1).reshape(-1)
    return values.reshape(-1)


@lru_cache(maxsize=64)
def _edges(bins: int, device: str) -> Tensor:
    """`bins + 1` edges, the same for every tensor: log-spaced on both sides of zero."""
    upper = max(1, bins // 2)
    lower = max(1, bins - upper)

    def side(count: int) -> list[float]:
        if count == 1:
            return [_HIGHEST]
        ratio = (_HIGHEST / _LOWEST) ** (1 / (count - 1))
        return [_LOWEST * ratio**k for k in range(count)]

    edges = [-edge for edge in reversed(side(lower))] + [0.0] + side(upper)
    return torch.tensor(edges[-(bins + 1) :], dtype=torch.float32, device=device)
