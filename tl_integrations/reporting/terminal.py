"""A run's health for people at a terminal and for scripts: a table with sparklines, sentences, plain data."""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from tl_integrations.capture.events import Record
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.capture.statistics import DEFAULT
from tl_integrations.options import SummaryOptions
from tl_integrations.reporting.health import Health, examine
from tl_integrations.reporting.measuring import measured
from tl_integrations.reporting.printing import shown
from tl_integrations.reporting.series import History, Series
from tl_integrations.reporting.summaries import captured_steps

Track = Callable[[Sequence[CapturedStep]], Iterable[CapturedStep]]
BLOCKS = "▁▂▃▄▅▆▇█"
SHOWN = {
    "mean": "mean",
    "std": "std",
    "absmax": "absmax",
    "zero_fraction": "zeros",
    "nonfinite_fraction": "bad",
}
"""Statistics that have a column, where they were captured, and how it is headed."""
UNMEASURED = (
    "No statistics were captured, so nothing was examined. Give the monitor a sink that asks for them, "
    "such as TensorBoardSink, or print `report_of(recording)`, which measures the tensors that were kept."
)


class Report:
    """Health as `rich` prints it, and as text.

    Args:
        health: What `examine` found.
        width: Steps that a sparkline shows; more are sampled.
    """

    def __init__(self, health: Health, width: int = 16) -> None:
        self.health = health
        self._width = width

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield from self._parts()

    def __str__(self) -> str:
        console = Console(width=140, color_system=None, legacy_windows=False)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """Findings and newest statistics as plain data that JSON can hold.

        `healthy` is None where nothing was measured.
        """
        history = self.health.history
        stages = {stage: _plain(history.series(stage)) for stage in history.stages}
        return {
            "healthy": self.health.healthy if self._measured or not self.health.healthy else None,
            "findings": list(map(_finite, map(asdict, self.health.findings))),
        } | {"stages": stages}

    def _parts(self) -> Iterator[RenderableType]:
        for stage in self.health.history.stages:
            yield self._table(stage)
        if self.health.healthy and self._measured:
            yield Text("Nothing looks wrong.", style="green")
        elif self.health.healthy:
            yield Text(UNMEASURED, style="yellow")
        for finding in self.health.findings:
            yield Text(f"! {finding.words}", style="yellow")

    @property
    def _measured(self) -> bool:
        history = self.health.history
        return any(history.series(stage).statistics() for stage in history.stages)

    def _table(self, stage: str) -> Table:
        series = self.health.history.series(stage)
        known = series.statistics()
        columns = [name for name in SHOWN if name in known]
        table = Table(
            title=_title(stage, series),
            title_justify="left",
            pad_edge=False,
            box=SIMPLE_HEAD,
            collapse_padding=True,
        )
        table.add_column("layer", overflow="fold", min_width=12)
        table.add_column("std over steps", no_wrap=True, min_width=min(self._width, len(series)))
        for name in columns:
            table.add_column(SHOWN[name], justify="right", no_wrap=True)
        table.add_column("looks", overflow="fold", min_width=9)
        for layer in series.layers:
            latest = series.latest(layer)
            wrong = ", ".join(dict.fromkeys(each.rule for each in self.health.of(layer, stage)))
            table.add_row(
                shown(layer),
                sparkline(series.row(layer, "std").tolist(), self._width),
                *(_number(name, latest.get(name, math.nan)) for name in columns),
                Text(wrong or "ok", style="yellow" if wrong else "green") if latest else Text("not measured"),
            )
        return table


def report_of(records: Iterable[Record], *, track: Track = iter) -> Report:
    """The report of all records of a run, such as a loaded bundle's.

    Records without statistics are measured where their tensors were kept.

    Args:
        records: In the order of capture.
        track: Passes on the steps; a progress bar goes here.
    """
    history = History()
    options = SummaryOptions(statistics=DEFAULT)
    for captured in track(captured_steps(records)):
        history.add(replace(captured, records=measured(captured.records, options, only_missing=True)))
    return Report(examine(history))


def sparkline(values: Sequence[float], width: int = 24) -> str:
    """Values as a line of blocks from the least to the greatest; `!` not finite, a blank not captured.

    Args:
        values: NaN: not captured. Infinite: not finite.
        width: Characters at most; more values are sampled evenly, the first and the last always.
    """
    if len(values) > width:
        values = [values[round(place * (len(values) - 1) / (width - 1))] for place in range(width)]
    known = [value for value in values if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 0.0)
    return "".join(_block(value, low, high) for value in values)


def _block(value: float, low: float, high: float) -> str:
    if math.isnan(value):
        return " "
    if math.isinf(value):
        return "!"
    place = (value - low) / (high - low) if high > low else 0.0
    return BLOCKS[min(int(place * len(BLOCKS)), len(BLOCKS) - 1)]


def _title(stage: str, series: Series) -> str:
    steps = series.steps
    span = f"step {steps[0]}" if len(steps) == 1 else f"{len(steps)} steps from {steps[0]} to {steps[-1]}"
    layers = "1 layer" if len(series.layers) == 1 else f"{len(series.layers)} layers"
    return f"{stage}: {layers}, captured at {span}"


def _number(name: str, value: float) -> str:
    if math.isnan(value):
        return ""
    if math.isinf(value):
        return "not finite"
    return f"{value:.0%}" if name.endswith("_fraction") else f"{value:.3g}"


def _plain(series: Series) -> dict[str, Any]:
    return {
        "steps": list(series.steps),
        "layers": {layer: _finite(series.latest(layer)) for layer in series.layers},
    }


def _finite(values: Any) -> dict[str, Any]:
    """Numbers that JSON has; None in place of others."""
    return {
        key: None if isinstance(value, float) and not math.isfinite(value) else value
        for key, value in dict(values).items()
    }
