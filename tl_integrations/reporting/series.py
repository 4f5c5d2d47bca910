"""Statistics over steps: for each statistic a compact table of layers by steps."""

import math
from array import array
from collections.abc import Iterable, Mapping

import numpy as np
from numpy.typing import NDArray

from tl_integrations.capture.events import Record
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.reporting.summaries import captured_steps, layers, step_of

MISSING = math.nan
"""A layer that a step does not have."""
NOT_FINITE = math.inf
"""A statistic that came out as NaN or infinite."""


class Series:
    """The statistics of captured steps of one stage.

    Four bytes per number. With a limit, every second step is dropped whenever it is reached, so memory stays
    bounded and the whole run stays in sight.

    Args:
        limit: Steps that are held at most; None: all.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self.taken: int = 0
        """Steps that were added, dropped ones included."""
        self.steps: list[int] = []
        self.layers: dict[str, Record] = {}
        """Layers in the order they were first captured, each with a record that describes it (no tensor)."""
        self._values: dict[str, dict[str, array[float]]] = {}

    def __len__(self) -> int:
        return len(self.steps)

    def append(self, step: int, found: Iterable[tuple[str, Record]]) -> None:
        """Take named records as one more step."""
        width = len(self.steps)
        self.steps.append(step)
        self.taken += 1
        for layer, record in found:
            if layer not in self.layers:
                self.layers[layer] = described(record)
            rows = self._values.setdefault(layer, {})
            for name, value in (record.statistics or {}).items():
                row = rows.setdefault(name, array("f"))
                row.extend([MISSING] * (width - len(row)))
                row.append(value if math.isfinite(value) else NOT_FINITE)
        if self._limit is not None and len(self.steps) > self._limit:
            self._thin()

    def statistics(self) -> list[str]:
        """Names of all statistics that any layer has."""
        return list(dict.fromkeys(name for rows in self._values.values() for name in rows))

    def matrix(self, statistic: str) -> NDArray[np.float32]:
        """Values of shape `(layers, steps)`; `MISSING` and `NOT_FINITE` where there are none."""
        matrix = np.full((len(self.layers), len(self.steps)), MISSING, dtype=np.float32)
        for place, rows in enumerate(self._values.values()):
            if statistic in rows:
                matrix[place, : len(rows[statistic])] = rows[statistic]
        return matrix

    def row(self, layer: str, statistic: str) -> NDArray[np.float32]:
        """One layer's values over all steps."""
        row = np.full(len(self.steps), MISSING, dtype=np.float32)
        values = self._values.get(layer, {}).get(statistic, array("f"))
        row[: len(values)] = values
        return row

    def latest(self, layer: str) -> Mapping[str, float]:
        """The newest value of each statistic of a layer."""
        found: dict[str, float] = {}
        for name, values in self._values.get(layer, {}).items():
            known = next((value for value in reversed(values) if not math.isnan(value)), None)
            if known is not None:
                found[name] = known
        return found

    def latest_step(self, layer: str) -> int:
        """The newest step that a layer has a number of; the newest of all where it has none."""
        rows = self._values.get(layer, {}).values()
        places = (
            place for row in rows for place in range(len(row) - 1, -1, -1) if not math.isnan(row[place])
        )
        return self.steps[max(places, default=-1)]

    def _thin(self) -> None:
        width = len(self.steps)
        keep = slice((width - 1) % 2, None, 2)
        for rows in self._values.values():
            for name, row in rows.items():
                row.extend([MISSING] * (width - len(row)))
                rows[name] = row[keep]
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


class History:
    """The series of a run: one for each stage and kind of record, such as outputs or gradients.

    Args:
        limit: Steps that each series holds at most; None: all.
    """

    def __init__(self, limit: int | None = None) -> None:
        self._limit = limit
        self._series: dict[tuple[str, str], Series] = {}

    @classmethod
    def of(cls, records: Iterable[Record]) -> "History":
        """The history of many records, such as all of a bundle, in the order they were captured."""
        history = cls()
        for captured in captured_steps(records):
            history.add(captured)
        return history

    def add(self, captured: CapturedStep) -> None:
        """Take one captured step."""
        kinds: dict[str, list[tuple[str, Record]]] = {}
        for layer, record in layers(captured):
            kinds.setdefault(record.io, []).append((layer, record))
        for kind, found in kinds.items():
            key = (captured.moment.stage, kind)
            self._series.setdefault(key, Series(self._limit)).append(step_of(captured), found)

    def series(self, stage: str = "train", of: str = "output") -> Series:
        """The series of one stage and kind; empty where nothing was captured."""
        return self._series.get((stage, of), Series())

    @property
    def stages(self) -> list[str]:
        """Stages that have outputs, in the order they first came."""
        return [stage for stage, kind in self._series if kind == "output"]
