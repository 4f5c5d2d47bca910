"""Loggers by what they offer: one call per captured step, names they take, steps kept."""

import csv
import math
from pathlib import Path
from typing import Any

import lightning.pytorch.loggers
import pytest
import pytorch_lightning.loggers
import torch
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from tests.reporting.captures import board, captured, scalars
from tl_integrations.options import ReportOptions
from tl_integrations.reporting import LoggerSink
from tl_integrations.reporting.loggers import unique


class Spy:
    """A logger that keeps its calls."""

    def __init__(self, separator: str = "/") -> None:
        self.group_separator = separator
        self.calls: list[tuple[dict[str, float], int]] = []
        self.saved = 0

    experiment: Any = None

    def log_metrics(self, metrics: Any, step: int) -> None:
        self.calls.append((dict(metrics), step))

    def save(self) -> None:
        self.saved += 1


def test_a_captured_step_is_one_call_with_plain_floats() -> None:
    spy = Spy()
    LoggerSink(spy).write(captured(30, {f"layer.{index}": torch.randn(3) for index in range(20)}))
    ((metrics, step),) = spy.calls
    assert step == 30 and len(metrics) == 5 * 20 + 3
    assert all(type(value) is float for value in metrics.values())


def test_keys_stay_the_same_from_step_to_step() -> None:
    spy = Spy()
    sink = LoggerSink(spy)
    sink.write(captured(0, {"a": torch.ones(2), "b": torch.ones(2)}))
    sink.write(captured(1, {"a": torch.ones(2)}))
    (first, _), (second, _) = spy.calls
    assert list(first) == list(second) and math.isnan(second["act_mean/b"])


def test_groups_are_separated_as_the_logger_likes() -> None:
    spy = Spy(separator=".")
    LoggerSink(spy, report=ReportOptions(prefix="x_")).write(captured(0, {"a": torch.ones(2)}))
    assert "x_act_mean.a" in spy.calls[0][0]


def test_names_that_fall_together_get_a_number() -> None:
    assert unique("a", []) == "a" and unique("a", ["a", "a_2"]) == "a_3"


def test_flush_and_close_save_but_never_end_the_logger() -> None:
    spy = Spy()
    sink = LoggerSink(spy)
    sink.flush()
    sink.close()
    sink.close()
    assert spy.saved == 3


def test_a_logger_that_cannot_show_histograms_asks_for_none() -> None:
    assert LoggerSink(Spy(), histograms=64).needs.summaries.histogram_bins == 0


@pytest.mark.parametrize("package", [lightning.pytorch.loggers, pytorch_lightning.loggers])
def test_tensorboard_loggers_of_both_package_names_get_scalars_and_histograms(
    package: Any, tmp_path: Path
) -> None:
    logger = package.TensorBoardLogger(tmp_path, name="tb", version=0)
    sink = LoggerSink(logger, histograms=16)
    assert sink.needs.summaries.histogram_bins == 16
    sink.write(captured(4, {"a": torch.arange(6.0)}))
    logger.log_metrics({"loss": 1.0}, 4)
    sink.close()
    logger.finalize("success")
    read = board(tmp_path / "tb/version_0")
    assert scalars(read, "act_mean/a") == {4: 2.5} and scalars(read, "loss") == {4: 1.0}
    assert read.Tags()["histograms"] == ["act_hist/a"]
    assert len(list(tmp_path.rglob("events*"))) == 1


def events_with_numbers(folder: Path) -> list[int]:
    """How many numbers each event of a board holds, those without any left out."""
    (file,) = folder.rglob("events*")
    return [n for event in EventFileLoader(str(file)).Load() if (n := len(event.summary.value))]


def test_the_numbers_of_a_step_are_one_event_of_a_tensorboard_logger(tmp_path: Path) -> None:
    logger = lightning.pytorch.loggers.TensorBoardLogger(tmp_path, name="tb", version=0)
    sink = LoggerSink(logger, report=ReportOptions(layout=False))
    for step in (0, 1):
        sink.write(captured(step, {f"layer.{index}": torch.randn(3) for index in range(20)}))
    logger.finalize("success")
    assert events_with_numbers(tmp_path) == [103, 103]


def test_a_tensorboard_logger_with_ways_of_its_own_is_asked_to_log(tmp_path: Path) -> None:
    calls: list[int | None] = []

    class Own(lightning.pytorch.loggers.TensorBoardLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            calls.append(step)

    LoggerSink(Own(tmp_path / "own")).write(captured(3, {"a": torch.ones(2)}))
    prefixed = lightning.pytorch.loggers.TensorBoardLogger(tmp_path / "prefixed", prefix="run")
    LoggerSink(prefixed).write(captured(3, {"a": torch.ones(2)}))
    prefixed.finalize("success")
    assert calls == [3] and scalars(board(Path(prefixed.log_dir)), "run-act_mean/a") == {3: 1.0}


def test_a_csv_logger_makes_one_row_per_captured_step(tmp_path: Path) -> None:
    logger = lightning.pytorch.loggers.CSVLogger(tmp_path, name="csv", version=0)
    sink = LoggerSink(logger)
    for step in (0, 10, 20):
        sink.write(captured(step, {"a": torch.full((2,), float(step))}))
    sink.close()
    with open(tmp_path / "csv/version_0/metrics.csv") as file:
        rows = list(csv.DictReader(file))
    assert [(row["step"], float(row["act_mean/a"])) for row in rows] == [("0", 0), ("10", 10), ("20", 20)]
