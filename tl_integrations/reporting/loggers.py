"""Captured steps in any Lightning-style logger, known by what it offers and not by its class."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from importlib import import_module
from itertools import count
from typing import Any, Protocol

import numpy as np

from tl_integrations.capture.events import Histogram
from tl_integrations.capture.protocols import CapturedStep, Outcome, SinkNeeds
from tl_integrations.capture.statistics import DEFAULT
from tl_integrations.options import ReportOptions
from tl_integrations.reporting.board import Board, needs_of
from tl_integrations.reporting.step_event import bundles, write_scalars
from tl_integrations.reporting.summaries import Summaries, layers, step_of, tag
from tl_integrations.reporting.tensorboard import Writer


class Logger(Protocol):
    """What is used of a logger."""

    @property
    def experiment(self) -> Any: ...

    def log_metrics(self, metrics: Mapping[str, Any], step: int) -> None: ...


class LoggerSink:
    """Gives captured steps to a logger: all numbers of a step in one `log_metrics` call.

    Loggers that number rows themselves (CSV, W&B) would count a second call as another step. Lightning's
    TensorBoardLogger, whose `log_metrics` makes an event of each number, has them written as one event.
    Histograms go to loggers that can show them: those with a TensorBoard writer, and W&B.

    Args:
        logger: A Lightning logger of either package name, or any object with `log_metrics(metrics, step)`.
        statistics: Scalars per layer, names of `capture.statistics`.
        histograms: Bins of a histogram per layer; 0 makes none.
        report: Prefix, grouping, budget, pictures.
        selector: What selects the records, for warnings.
    """

    def __init__(
        self,
        logger: Logger,
        statistics: Sequence[str] = DEFAULT,
        histograms: int = 0,
        *,
        report: ReportOptions | None = None,
        selector: str = "",
    ) -> None:
        self._logger = logger
        self._report = report or ReportOptions()
        self._summaries = Summaries(statistics, self._report, selector)
        experiment = getattr(logger, "experiment", None)
        self._board: Board | None = None
        self._wrap: Callable[[Histogram], object] | None = None
        self._bundles = bundles(experiment, "add_scalar") and is_lightnings_own(logger)
        if isinstance(experiment, Writer):
            self._board = Board(experiment, statistics, histograms, self._report)
            self._needs = needs_of(statistics, histograms, self._report)
        else:
            self._wrap = histogram_wrapper(experiment)
            bins = histograms if self._wrap is not None else 0
            self._needs = needs_of(statistics, bins, replace(self._report, images=()))
        self._rule = naming_rule(logger)
        self._names: dict[str, str] = {}

    @property
    def needs(self) -> SinkNeeds:
        """What it must find in every record."""
        return self._needs

    def write(self, captured: CapturedStep) -> None:
        """Log one captured step.

        Args:
            captured: Its records, with their statistics.
        """
        step = step_of(captured)
        if self._board is not None:
            self._write_scalars(self._summaries.metrics(captured), step)
            self._board.write(captured)
        else:
            self._logger.log_metrics(
                self._named(self._summaries.row(captured) | self._wrapped(captured)), step
            )

    def _write_scalars(self, metrics: Mapping[str, float], step: int) -> None:
        if self._bundles:
            write_scalars(self._logger.experiment, metrics, step)
        else:
            self._logger.log_metrics(metrics, step)

    def flush(self) -> None:
        """Draw what is due and have the logger write its file."""
        self._finish(final=False)

    def close(self, outcome: Outcome = Outcome()) -> None:
        """Draw the last pictures and have the logger write its file; the logger stays open.

        Args:
            outcome: How the run ended.
        """
        self._finish(final=True)

    def _finish(self, *, final: bool) -> None:
        if self._board is not None:
            self._board.draw(final=final)
        save = getattr(self._logger, "save", None)
        if save is not None:
            save()

    def _wrapped(self, captured: CapturedStep) -> dict[str, Any]:
        """The step's histograms as objects that the logger shows; they travel with the metrics."""
        if self._wrap is None:
            return {}
        stage = captured.moment.stage
        return {
            tag("hist", layer, self._report, stage, record.io): self._wrap(record.histogram)
            for layer, record in layers(captured)
            if record.histogram is not None and record.histogram.num > 0
        }

    def _named(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics under names that the logger takes, each name made once."""
        for key in metrics:
            if key not in self._names:
                self._names[key] = unique(self._rule(key), self._names.values())
        return {self._names[key]: value for key, value in metrics.items()}


def is_lightnings_own(logger: object) -> bool:
    """Whether a logger is Lightning's TensorBoardLogger, of either package name, doing nothing but write."""
    home = getattr(getattr(type(logger), "log_metrics", None), "__module__", "")
    plain = home in ("lightning.fabric.loggers.tensorboard", "lightning_fabric.loggers.tensorboard")
    return plain and not getattr(logger, "_prefix", "")


def histogram_wrapper(experiment: object) -> Callable[[Histogram], object] | None:
    """How an experiment that is no TensorBoard writer wants histograms; None where it takes none."""
    if type(experiment).__module__.partition(".")[0] != "wandb":
        return None
    # W&B made this experiment, so it is there; it is no dependency.
    wandb = import_module("wandb")
    return lambda histogram: wandb.Histogram(
        np_histogram=(np.array(histogram.counts), np.array(histogram.edges))
    )


def naming_rule(logger: object) -> Callable[[str], str]:
    """How a logger wants names of metrics, by the name of its class."""
    if any(each.__name__ == "MLFlowLogger" for each in type(logger).__mro__):
        return lambda name: re.sub(r"[^a-zA-Z0-9_/. -]", "_", name)
    separator = getattr(logger, "group_separator", "/")
    return lambda name: name.replace("/", separator)


def unique(name: str, taken: Collection[str]) -> str:
    """`name`, with a number behind it where two names became one."""
    if name not in taken:
        return name
    return next(new for k in count(2) if (new := f"{name}_{k}") not in taken)
