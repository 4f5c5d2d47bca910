"""Numbers and histograms of captured tensors, computed on their device, fetched in one transfer per step.

Values in host memory that are all finite take a quicker way (`host_numbers.py`); this one holds everywhere.

| dtype          | what is measured                                                       |
|----------------|------------------------------------------------------------------------|
| float          | the values, accumulated in float32 (float64 stays float64)             |
| integer, bool  | the values as float32                                                  |
| complex        | the magnitudes                                                         |
| quantized      | the dequantized values                                                 |
| no elements    | fractions and counts 0, everything else nan                            |

Every statistic is over all values, so a nan among them shows as nan; `nonfinite_fraction` says how many. A
histogram describes finite values, of a sample where there are many. Nothing here branches on values, since
that would wait for the device.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from tl_integrations.capture.events import Histogram
from tl_integrations.capture.histograms import (
    MOMENTS,
    SAMPLE,
    check_bins,
    counted,
    counted_on_host,
    edges,
    sampled,
)
from tl_integrations.capture.host_numbers import STATISTICS as HOST_STATISTICS
from tl_integrations.capture.host_numbers import HostNumbers, host_numbers
from tl_integrations.errors import SelectorError, near_names
from tl_integrations.options import SummaryOptions

DEFAULT = ("mean", "std", "absmax", "zero_fraction", "nonfinite_fraction")
Numbers = tuple[dict[str, float], Histogram | None]


@dataclass(frozen=True, slots=True)
class Measured:
    """One tensor's numbers, still on its device."""

    values: Tensor | list[float]
    """The statistics; then, with a histogram, minimum, maximum, sum, squares and the counts. A tensor is 1-D
    float64."""
    names: tuple[str, ...]
    bins: int


class _Values:
    """A tensor's values with what several statistics share."""

    __slots__ = ("_mean", "flat")

    def __init__(self, flat: Tensor) -> None:
        self.flat = flat
        self._mean: Tensor | None = None

    @property
    def mean(self) -> Tensor:
        if self._mean is None:
            self._mean = self.flat.mean()
        return self._mean


def _std(v: _Values) -> Tensor:
    # Half the time of torch.std, and a sum of squares around the mean is as exact.
    return (v.flat - v.mean).square_().mean().sqrt_()


def _absmax(v: _Values) -> Tensor:
    low, high = torch.aminmax(v.flat)
    highest: Tensor = torch.maximum(-low, high)
    return highest


def _zero_fraction(v: _Values) -> Tensor:
    return (v.flat.numel() - torch.count_nonzero(v.flat)) / v.flat.numel()


def _nonfinite_fraction(v: _Values) -> Tensor:
    return torch.isfinite(v.flat).logical_not().to(torch.float64).mean()


def _quantile(v: _Values, q: float) -> Tensor:
    return torch.quantile(v.flat[:: 1 + v.flat.numel() // SAMPLE].float(), q)


_STATISTICS: dict[str, Callable[[_Values], Tensor]] = {
    "mean": lambda v: v.mean,
    "std": _std,
    "absmax": _absmax,
    "zero_fraction": _zero_fraction,
    "nonfinite_fraction": _nonfinite_fraction,
    "rms": lambda v: v.flat.square().mean().sqrt_(),
    "norm": lambda v: torch.linalg.vector_norm(v.flat),
    "min": lambda v: torch.amin(v.flat),
    "max": lambda v: torch.amax(v.flat),
    "median": lambda v: _quantile(v, 0.5),
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
        check_bins(options.histogram_bins)
        if not options.statistics and not options.histogram_bins:
            raise SelectorError("Nothing to measure: name a statistic, or give a number of bins.")
        self.names: tuple[str, ...] = options.statistics
        self.bins: int = options.histogram_bins

    def measure(self, tensor: Tensor) -> Measured | None:
        """The tensor's numbers, on its device; None for one that has no values (meta, sparse, nested)."""
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested:
            return None
        values = as_measurable(tensor)
        numbers: Tensor | list[float] | None = self._on_host(values)
        if numbers is None:
            with torch.no_grad():
                numbers = self._everywhere(values)
        return Measured(numbers, self.names, self.bins)

    def _on_host(self, values: Tensor) -> list[float] | None:
        numbers: list[float] = []
        read: HostNumbers | None = None
        if self.names:
            read = host_numbers(values)
            if read is None:
                return None
            shared = _Values(values)
            numbers = [
                HOST_STATISTICS[name](read) if name in HOST_STATISTICS else float(_STATISTICS[name](shared))
                for name in self.names
            ]
        if self.bins:
            few = sampled(values)
            sample = read if few is values and read is not None else host_numbers(few)
            if sample is None:
                return None
            numbers += counted_on_host(sample, self.bins)
        return numbers

    def _everywhere(self, values: Tensor) -> Tensor:
        parts = [self._numbers(values)] if self.names else []
        parts += [self._counts(values)] if self.bins else []
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def _numbers(self, values: Tensor) -> Tensor:
        if values.numel() == 0:
            nothing = [0.0 if name.endswith("_fraction") else math.nan for name in self.names]
            return torch.tensor(nothing, dtype=torch.float64, device=values.device)
        shared = _Values(values)
        # One conversion of all numbers: one each would take as long as the numbers themselves.
        return torch.stack([_STATISTICS[name](shared).to(values.dtype) for name in self.names]).double()

    def _counts(self, values: Tensor) -> Tensor:
        if values.numel() == 0:
            return torch.zeros(MOMENTS + self.bins, dtype=torch.float64, device=values.device)
        return counted(sampled(values), self.bins)


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
        edges=edges(measured.bins),
        counts=tuple(map(int, counts)),
        minimum=low,
        maximum=high,
        total=total,
        squares=squares,
    )
    return statistics, histogram


def fetch(vectors: Sequence[Tensor | list[float]]) -> list[list[float]]:
    """Vectors as lists, moved to the host with one transfer per device."""
    fetched = [[] if isinstance(vector, Tensor) else vector for vector in vectors]
    by_device: dict[torch.device, list[tuple[int, Tensor]]] = {}
    for position, vector in enumerate(vectors):
        if isinstance(vector, Tensor):
            by_device.setdefault(vector.device, []).append((position, vector))
    for there in by_device.values():
        flat = torch.cat([vector for _, vector in there]).tolist()
        start = 0
        for position, vector in there:
            fetched[position] = flat[start : (start := start + len(vector))]
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
