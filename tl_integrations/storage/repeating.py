"""Columns of a table whose values repeat, or are missing in part; neither makes an object per row."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from tl_integrations.storage.tlspec import NO_STEP


class CodedColumn(Sequence[Any]):
    """A column whose values repeat: numbers into a short list of values."""

    def __init__(self, codes: np.ndarray, values: Sequence[Any]) -> None:
        self.codes: np.ndarray = codes
        self.values: Sequence[Any] = values

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return CodedColumn(self.codes[index], self.values)
        return self.values[self.codes[index]]

    def __iter__(self) -> Iterator[Any]:
        return map(self.values.__getitem__, self.codes.tolist())

    def rows_of(self, value: Any) -> np.ndarray:
        """Rows with that value, rising."""
        wanted = [code for code, other in enumerate(self.values) if other == value]
        return np.flatnonzero(np.isin(self.codes, wanted))


class StepColumn(Sequence[Any]):
    """Steps as 64-bit numbers, None for records outside of a loop."""

    def __init__(self, numbers: np.ndarray) -> None:
        self.numbers = numbers

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return StepColumn(self.numbers[index])
        step = int(self.numbers[index])
        return None if step == NO_STEP else step

    def __iter__(self) -> Iterator[Any]:
        return (None if step == NO_STEP else step for step in self.numbers.tolist())

    def rows_of(self, value: Any) -> np.ndarray:
        """Rows with that step, rising."""
        return np.flatnonzero(self.numbers == (NO_STEP if value is None else value))

    def distinct(self) -> list[int]:
        """The steps, rising, each once."""
        return [step for step in np.unique(self.numbers).tolist() if step != NO_STEP]
