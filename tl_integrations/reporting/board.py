"""Captured steps on a TensorBoard writer; the writer stays its owner's, who closes it."""

import warnings
from collections.abc import Sequence

from tl_integrations.capture.events import Histogram
from tl_integrations.capture.globs import glob_regex
from tl_integrations.capture.protocols import CapturedStep, Outcome, SinkNeeds
from tl_integrations.capture.statistics import DEFAULT
from tl_integrations.options import ReportOptions, SummaryOptions
from tl_integrations.reporting.featuremaps import feature_maps
from tl_integrations.reporting.heatmap import heat_map
from tl_integrations.reporting.series import History, Series
from tl_integrations.reporting.step_event import write_histograms, write_scalars
from tl_integrations.reporting.summaries import (
    Summaries,
    cost_tag,
    layer_name,
    layers,
    step_of,
    tag,
)
from tl_integrations.reporting.tensorboard import (
    Writer,
    write_image,
    write_layout,
    write_text,
)
from tl_integrations.reporting.texts import step_list

SHOWN = ("output", "input", "gradient")
"""Kinds of records that have histograms."""
MOST_STEPS = 2000
"""Steps of which statistics are held for a heat map."""


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
        statistics: Sequence[str] = DEFAULT,
        *,
        report: ReportOptions | None = None,
        selector: str = "",
    ) -> None:
        self._writer = writer
        report = report or ReportOptions()
        self._summaries = Summaries(statistics, report, selector)
        self._board = Board(writer, statistics, histograms, report)
        self._needs = needs_of(statistics, histograms, report)

    @property
    def needs(self) -> SinkNeeds:
        """What it must find in every record."""
        return self._needs

    def write(self, captured: CapturedStep) -> None:
        """Write one captured step.

        Args:
            captured: Its records, with their statistics.
        """
        write_scalars(self._writer, self._summaries.metrics(captured), step_of(captured))
        self._board.write(captured)

    def flush(self) -> None:
        """Draw what is due and flush the writer."""
        self._board.draw()
        self._writer.flush()

    def close(self, outcome: Outcome = Outcome()) -> None:
        """Draw the last pictures and flush the writer, which stays open.

        Args:
            outcome: How the run ended.
        """
        self._board.draw(final=True)
        self._writer.flush()


def needs_of(statistics: Sequence[str], histograms: int, report: ReportOptions) -> SinkNeeds:
    """What a sink that reports must find in every record."""
    summaries = SummaryOptions(statistics=tuple(statistics), histogram_bins=histograms)
    return SinkNeeds(payloads=bool(report.images), summaries=summaries)


class Board:
    """What a board shows beside scalars: histograms, feature maps, heat maps, a layout of charts.

    A layer without a finite value has no histogram; such are counted in a scalar of each step, and the first
    ones are warned of.
    """

    def __init__(
        self, writer: Writer, statistics: Sequence[str], histograms: int, report: ReportOptions
    ) -> None:
        self._writer = writer
        self._statistics = tuple(statistics)
        self._histograms = histograms > 0
        self._report = report
        self._history = History(limit=MOST_STEPS)
        self._drawn: dict[str, int] = {}
        self._opened = False
        self._steps: list[int] = []
        self._warned = False

    def write(self, captured: CapturedStep) -> None:
        """Show one captured step."""
        if captured.moment.stage == "train":
            self._steps.append(step_of(captured))
        if not self._opened:
            self._opened = True
            if self._report.layout and len(captured.records) > 1:
                write_layout(self._writer, self._statistics, self._report)
        if self._histograms:
            self._write_histograms(captured)
        self._write_images(captured)
        if self._report.heat_map:
            self._history.add(captured)

    def draw(self, *, final: bool = False) -> None:
        """Draw the heat maps: at the end, and before that whenever there are twice the steps."""
        if final and self._steps:
            name = cost_tag("steps", self._report)
            write_text(self._writer, name, step_list(self._steps), max(self._steps))
            self._steps = []
        for stage in self._history.stages:
            series = self._history.series(stage)
            steps = series.taken
            if steps > self._drawn.get(stage, 0) * (1 if final else 2):
                self._drawn[stage] = steps
                self._draw(stage, series)

    def _draw(self, stage: str, series: Series) -> None:
        for statistic in self._statistics:
            name = f"act_{statistic}" if stage == "train" else f"{stage}_act_{statistic}"
            image = heat_map(series.matrix(statistic), list(series.layers), series.steps, name)
            write_image(self._writer, f"{self._report.prefix}heat_map/{name}", image, max(series.steps))

    def _write_images(self, captured: CapturedStep) -> None:
        for layer, record in layers(captured):
            wanted = any(glob_regex(glob).fullmatch(layer_name(record)) for glob in self._report.images)
            if wanted and record.payload is not None:
                image = feature_maps(record.payload.read())
                if image is not None:
                    name = tag("image", layer, self._report, captured.moment.stage, record.io)
                    write_image(self._writer, name, image, step_of(captured))

    def _write_histograms(self, captured: CapturedStep) -> None:
        step, stage = step_of(captured), captured.moment.stage
        measured = [(layer, each) for layer, each in layers(captured) if each.statistics and each.io in SHOWN]
        empty: list[str] = []
        shown: dict[str, Histogram] = {}
        for layer, record in measured[: self._report.max_tags]:
            if record.histogram is None or record.histogram.num == 0:
                empty.append(layer)
            else:
                shown[tag("hist", layer, self._report, stage, record.io)] = record.histogram
        write_histograms(self._writer, shown, step)
        name = cost_tag("histograms_skipped", self._report, stage)
        if measured:
            self._writer.add_scalar(name, len(empty), step)
        if empty and not self._warned:
            self._warned = True
            warnings.warn(
                f"No histogram of {empty[0]!r} at step {step}: it has no finite value "
                f"({len(empty)} such in this step). The nonfinite_fraction of each layer shows where; "
                f"from here on such are only counted, in {name}.",
                stacklevel=2,
            )
