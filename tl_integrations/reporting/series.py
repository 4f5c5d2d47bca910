"""Statistics over steps: one compact table of layers by steps for each statistic."""

import math
from array import array
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tl_integrations.capture.events import Record
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.reporting.summaries import layers, step_of

MISSING = math.nan
"""A layer that a step does not have."""
NOT_FINITE = math.inf
"""A statistic that came out as NaN or infinite."""


class Series:
    """Collects the statistics of captured steps of one stage.

    Four bytes per number. With a limit, every second step is dropped whenever it is reached, so memory stays
    bounded and the whole run stays in sight.

    Args:
        limit: Steps that are held at most; None: all.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self.taken = 0
        """Steps that were added, dropped ones included."""
        self.steps: list[int] = []
        self.layers: dict[str, Record] = {}
        """Layers in the order they were first captured, each with a record that describes it (no tensor)."""
        self._values: dict[tuple[str, str], array[float]] = {}

    def __len__(self) -> int:
        return len(self.steps)

    def add(self, captured: CapturedStep) -> None:
        """Take one captured step; outputs only."""
        found = [(layer, record) for layer, record in layers(captured) if record.io == "output"]
        self.append(step_of(captured), found)

    def append(self, step: int, found: Iterable[tuple[str, Record]]) -> None:
        """Take named records as one more step."""
        width = len(self.steps)
        self.steps.append(step)
        self.taken += 1
        for layer, record in found:
            if layer not in self.layers:
                self.layers[layer] = described(record)
            for name, value in (record.statistics or {}).items():
                row = self._values.setdefault((layer, name), array("f"))
                row.extend([MISSING] * (width - len(row)))
                row.append(value if math.isfinite(value) else NOT_FINITE)
        if self._limit is not None and len(self.steps) > self._limit:
            self._thin()

    def statistics(self) -> list[str]:
        """Names of all statistics that any layer has."""
        return list(dict.fromkeys(name for _, name in self._values))

    def matrix(self, statistic: str) -> NDArray[np.float32]:
        """Values of shape `(layers, steps)`; `MISSING` and `NOT_FINITE` where there are none."""
        matrix = np.full((len(self.layers), len(self.steps)), MISSING, dtype=np.float32)
        for place, layer in enumerate(self.layers):
            row = self._values.get((layer, statistic))
            if row is not None:
                matrix[place, : len(row)] = row
        return matrix

    def row(self, layer: str, statistic: str) -> NDArray[np.float32]:
        """One layer's values over all steps."""
        row = np.full(len(self.steps), MISSING, dtype=np.float32)
        values = self._values.get((layer, statistic), array("f"))
        row[: len(values)] = values
        return row

    def latest(self, layer: str) -> Mapping[str, float]:
        """The newest value of each statistic of a layer."""
        found: dict[str, float] = {}
        for name in self.statistics():
            row = self.row(layer, name)
            known = row[~np.isnan(row)]
            if len(known):
                found[name] = float(known[-1])
        return found

    def _thin(self) -> None:
        width = len(self.steps)
        keep = slice((width - 1) % 2, None, 2)
        for key, row in self._values.items():
            row.extend([MISSING] * (width - len(row)))
            self._values[key] = row[keep]
        self.steps = self.steps[keep]


def described(record: Record) -> Record:
    """The record without anything that holds memory."""
    return Record(
        func_name=record.func_name,
        address=record.address,
        label=record.label,
        layer=record.layer,
        shape=record.shape,
        dtype=record.dtype,
        moment=record.moment,
    )


def series_of(records: Iterable[Record]) -> dict[str, Series]:
    """Statistics of many records by stage, such as all of a bundle; they come in the order of capture."""
    grouped: dict[str, dict[tuple[int, int], list[Record]]] = {}
    for record in records:
        moment = record.moment
        key = (moment.step or 0, moment.batch or 0)
        grouped.setdefault(moment.stage, {}).setdefault(key, []).append(record)
    found: dict[str, Series] = {}
    for stage, steps in grouped.items():
        found[stage] = Series()
        for members in steps.values():
            found[stage].add(CapturedStep(moment=members[0].moment, records=members))
    return found
