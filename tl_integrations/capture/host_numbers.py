"""Numbers of values in host memory, as Python floats at once.

Calling a kernel takes as long as reading some ten thousand values, so each value is read four times (sum,
extremes, squares, zeros) and every statistic follows from those. Nothing is allocated but one byte per value.
"""

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

CHUNK = 65_536
"""Values whose squares are added up in float32 before float64 takes over; it bounds the rounding."""
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


class HostNumbers:
    """What was read of a vector whose values are all finite."""

    __slots__ = ("_squares", "high", "low", "size", "total", "values")

    def __init__(self, values: Tensor, total: float) -> None:
        self.values: Tensor = values
        self.size: int = values.numel()
        self.total: float = total
        low, high = torch.aminmax(values)
        self.low: float = low.item()
        self.high: float = high.item()
        self._squares: float | None = None

    @property
    def squares(self) -> float:
        """The sum of the values' squares; infinite where it overflows."""
        if self._squares is None:
            if self.size <= CHUNK:
                self._squares = torch.dot(self.values, self.values).item()
            else:
                chunks = torch.split(self.values, CHUNK)
                self._squares = math.fsum(torch.dot(chunk, chunk).item() for chunk in chunks)
        return self._squares

    @property
    def std(self) -> float:
        """The population's standard deviation.

        From the sum of squares where the mean takes little off it, else from the distances to the mean: the
        difference of two near numbers has lost its digits, and tiny or huge squares have none.
        """
        square, mean = self.squares / self.size, self.total / self.size
        if 1e-30 < square < math.inf and mean * mean < 0.75 * square:
            return math.sqrt(square - mean * mean)
        distances = self.values - mean
        return float(distances.square_().mean().sqrt_())

    @property
    def zeros(self) -> int:
        # Comparing and counting bytes takes a quarter of the time of counting floats.
        return int(np.count_nonzero(self.values.numpy() == 0))


STATISTICS: dict[str, Callable[[HostNumbers], float]] = {
    "mean": lambda n: n.total / n.size,
    "std": lambda n: n.std,
    "absmax": lambda n: max(-n.low, n.high),
    "zero_fraction": lambda n: n.zeros / n.size,
    "nonfinite_fraction": lambda n: 0.0,
    "min": lambda n: n.low,
    "max": lambda n: n.high,
}


def host_numbers(values: Tensor) -> HostNumbers | None:
    """Numbers of a vector; None where it is elsewhere, empty, no plain tensor, or its sum is not finite."""
    if not values.is_cpu or type(values) is not Tensor or _is_wrapped(values) or values.is_neg():
        return None
    # A finite sum needs finite values.
    total: float = values.sum().item()
    return HostNumbers(values, total) if values.numel() and math.isfinite(total) else None
