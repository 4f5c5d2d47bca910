"""Captured steps in TensorBoard: scalars, histograms of the device's counts, texts.

Works on any writer that has torch's `SummaryWriter` methods; the writer stays its owner's, who closes it.
"""

import sys
import warnings
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from tl_integrations.capture.events import Histogram
from tl_integrations.capture.protocols import CapturedStep, Outcome, SinkNeeds
from tl_integrations.options import ReportOptions, SummaryOptions
from tl_integrations.reporting.summaries import (
    DEFAULT_STATISTICS,
    Summaries,
    cost_tag,
    layers,
    step_of,
    tag,
)


@runtime_checkable
class TextWriter(Protocol):
    """What takes texts."""

    def add_text(self, tag: str, text_string: str, global_step: int) -> None: ...


@runtime_checkable
class Writer(TextWriter, Protocol):
    """What is used of a `SummaryWriter`."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[int],
        global_step: int,
    ) -> None: ...

    def flush(self) -> None: ...


class TensorBoardSink:
    """Writes captured steps to a TensorBoard writer.

    Args:
        writer: A `torch.utils.tensorboard.SummaryWriter`, or what has its methods. It is never closed here.
        statistics: Scalars per layer, names of `capture.statistics`.
        histograms: Bins of a histogram per layer; 0 makes none.
        report: Prefix, grouping, budget, pictures.
        selector: What selects the records, for warnings.

    Example:
        ::

            sink = TensorBoardSink(SummaryWriter("runs/a"))
            monitor = tl.StepMonitor(model, schedule=100, sinks=[sink])
    """

    def __init__(
        self,
        writer: Writer,
        histograms: int = 64,
        statistics: Sequence[str] = DEFAULT_STATISTICS,
        *,
        report: ReportOptions | None = None,
        selector: str = "",
    ) -> None:
        self._writer = writer
        report = report or ReportOptions()
        self._summaries = Summaries(statistics, report, selector)
        self._board = Board(writer, report)
        self._needs = needs_of(statistics, histograms, report)

    @property
    def needs(self) -> SinkNeeds:
        return self._needs

    def write(self, captured: CapturedStep) -> None:
        step = step_of(captured)
        for name, value in self._summaries.metrics(captured).items():
            self._writer.add_scalar(name, value, step)
        self._board.write(captured)

    def flush(self) -> None:
        self._writer.flush()

    def close(self, outcome: Outcome = Outcome()) -> None:
        self._writer.flush()


def needs_of(statistics: Sequence[str], histograms: int, report: ReportOptions) -> SinkNeeds:
    """What a sink that reports must find in every record."""
    summaries = SummaryOptions(statistics=tuple(statistics), histogram_bins=histograms)
    return SinkNeeds(payloads=bool(report.images), summaries=summaries)


class Board:
    """What a board shows beside scalars: the histograms of a captured step.

    A layer without a finite value has no histogram; such are counted in a scalar of each step, and the first
    ones are warned of.
    """

    def __init__(self, writer: Writer, report: ReportOptions) -> None:
        self._writer = writer
        self._report = report
        self._warned = False

    def write(self, captured: CapturedStep) -> None:
        """Show one captured step."""
        step, stage = step_of(captured), captured.moment.stage
        shown = [
            (layer, tag("hist", layer, self._report, stage, record.io), record.histogram)
            for layer, record in layers(captured)
            if record.histogram is not None
        ]
        empty = [layer for layer, _, histogram in shown if histogram.num == 0]
        for _, name, histogram in shown[: self._report.max_tags]:
            if histogram.num > 0:
                write_histogram(self._writer, name, histogram, step)
        name = cost_tag("histograms_skipped", self._report, stage)
        if shown:
            self._writer.add_scalar(name, len(empty), step)
        if empty and not self._warned:
            self._warned = True
            warnings.warn(
                f"No histogram of {empty[0]!r} at step {step}: it has no finite value "
                f"({len(empty)} such in this step). The nonfinite_fraction of each layer shows where; "
                f"from here on such are only counted, in {name}.",
                stacklevel=2,
            )


def write_histogram(writer: Writer, name: str, histogram: Histogram, step: int) -> None:
    """Write counts as they are; empty buckets at both ends are left out."""
    counts = histogram.counts
    filled = [place for place, count in enumerate(counts) if count]
    first, last = filled[0], filled[-1] + 1
    writer.add_histogram_raw(
        name,
        min=_bounded(histogram.minimum),
        max=_bounded(histogram.maximum),
        num=histogram.num,
        sum=_bounded(histogram.total),
        sum_squares=_bounded(histogram.squares),
        bucket_limits=[_bounded(edge) for edge in histogram.edges[first + 1 : last + 1]],
        bucket_counts=list(counts[first:last]),
        global_step=step,
    )


def write_text(writer: object, name: str, text: str, step: int = 0) -> None:
    """Write a text where the writer takes texts; nothing happens where it does not."""
    if isinstance(writer, TextWriter):
        writer.add_text(name, text, step)


def _bounded(value: float) -> float:
    """Sums of squares of large values overflow, and a board shows nothing beside an infinity."""
    largest = sys.float_info.max
    return min(max(value, -largest), largest) if value == value else 0.0
