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

import torch
from torch import Tensor

from tl_integrations.capture.events import Histogram
from tl_integrations.capture.histograms import MOMENTS, SAMPLE, check_bins, counted, edges
from tl_integrations.errors import SelectorError, near_names
from tl_integrations.options import SummaryOptions

DEFAULT = ("mean", "std", "absmax", "zero_fraction", "nonfinite_fraction")
Numbers = tuple[dict[str, float], Histogram | None]


@dataclass(frozen=True, slots=True)
class Measured:
    """One tensor's numbers, still on its device."""

    values: Tensor
    """1-D float64: the statistics; then, with a histogram, minimum, maximum, sum, squares and the counts."""
    names: tuple[str, ...]
    bins: int


class _Values:
    """A tensor's values with what several statistics share."""

    __slots__ = ("_finite", "_mean", "flat")

    def __init__(self, flat: Tensor) -> None:
        self.flat = flat
        self._mean: Tensor | None = None
        self._finite: bool | None = None

    @property
    def mean(self) -> Tensor:
        if self._mean is None:
            self._mean = self.flat.mean()
        return self._mean

    @property
    def surely_finite(self) -> bool:
        """Whether all values are known to be finite; never on a device, which would have to be waited for.

        A finite mean needs finite values, and looking at each would cost as much as all other statistics; an
        overflowing sum of finite values only leads to the careful counts.
        """
        if self._finite is None:
            self._finite = self.flat.device.type == "cpu" and math.isfinite(float(self.mean))
        return self._finite


def _std(v: _Values) -> Tensor:
    # Half the time of torch.std, and a sum of squares around the mean is as exact.
    return (v.flat - v.mean).square_().mean().sqrt_()


def _absmax(v: _Values) -> Tensor:
    low, high = torch.aminmax(v.flat)
    highest: Tensor = torch.maximum(-low, high)
    return highest


def _zero_fraction(v: _Values) -> Tensor:
    count = v.flat.numel()
    if v.surely_finite and count < 1 << 24:
        # On a CPU count_nonzero branches on each value: 20 times this where half of them are 0. A sum of ones
        # is exact as long as float32 has every integer up to it.
        signs = torch.sign(v.flat)
        return (count - torch.dot(signs, signs)) / count
    return (count - torch.count_nonzero(v.flat)) / count


def _nonfinite_fraction(v: _Values) -> Tensor:
    if v.surely_finite:
        return v.flat.new_zeros(())
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
        self.names = options.statistics
        self.bins = options.histogram_bins

    def measure(self, tensor: Tensor) -> Measured | None:
        """The tensor's numbers, on its device; None for one that has no values (meta, sparse, nested)."""
        if tensor.layout is not torch.strided or tensor.is_meta or tensor.is_nested:
            return None
        with torch.no_grad():
            values = as_measurable(tensor)
            parts = [self._numbers(values)] if self.names else []
            parts += [self._counts(values)] if self.bins else []
            return Measured(parts[0] if len(parts) == 1 else torch.cat(parts), self.names, self.bins)

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
        return counted(values, self.bins)


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
