"""What TensorBoard holds after captured steps were written, read back from its files."""

import math
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils.tensorboard import SummaryWriter

from tests.reporting.captures import board, captured, record, scalars, text
from tl_integrations.capture.events import Histogram
from tl_integrations.options import ReportOptions
from tl_integrations.reporting import TensorBoardSink
from tl_integrations.reporting.tensorboard import write_text


def test_scalars_stand_at_their_steps_with_their_values(tmp_path: Path) -> None:
    values = {step: torch.randn(4, 5) * step for step in (1, 20, 300)}
    with SummaryWriter(tmp_path) as writer:
        sink = TensorBoardSink(writer)
        for step, value in values.items():
            sink.write(captured(step, {"enc.0": value}))
        sink.close()
    read = board(tmp_path)
    assert scalars(read, "act_std/enc.0") == pytest.approx(
        {step: value.std(correction=0).item() for step, value in values.items()}
    )
    assert scalars(read, "capture/time_ms") == {1: 250, 20: 250, 300: 250}


def test_a_histogram_counts_every_value_within_its_limits(tmp_path: Path) -> None:
    value = torch.randn(50, 40)
    with SummaryWriter(tmp_path) as writer:
        TensorBoardSink(writer).write(captured(3, {"enc.0": value}))
    (event,) = board(tmp_path).Histograms("act_hist/enc.0")
    shown = event.histogram_value
    assert event.step == 3 and sum(shown.bucket) == shown.num == value.numel()
    assert shown.min == pytest.approx(value.min().item()) and shown.max == pytest.approx(value.max().item())
    assert shown.sum == pytest.approx(value.double().sum().item())
    assert shown.sum_squares == pytest.approx((value.double() ** 2).sum().item())
    below = [int((value <= limit).sum()) for limit in shown.bucket_limit[:-1]]
    running = [int(sum(shown.bucket[: k + 1])) for k in range(len(below))]
    assert all(abs(a - b) <= 1 for a, b in zip(below, running))


def test_empty_buckets_at_the_ends_are_left_out(tmp_path: Path) -> None:
    wide = Histogram(
        edges=(-1e20, -1.0, 0.0, 1.0, 2.0, 1e20),
        counts=(0, 3, 0, 2, 0),
        minimum=-0.5,
        maximum=1.5,
        total=2.0,
        squares=4.0,
    )
    with SummaryWriter(tmp_path) as writer:
        TensorBoardSink(writer).write(captured(1, [replace(record("b", torch.ones(1)), histogram=wide)]))
    shown = board(tmp_path).Histograms("act_hist/b")[0].histogram_value
    assert list(shown.bucket) == [3, 0, 2] and list(shown.bucket_limit) == [0, 1, 2]


def test_layers_without_finite_values_are_skipped_counted_and_warned_of_once(tmp_path: Path) -> None:
    nothing = {"bad": torch.full((3,), math.nan), "empty": torch.zeros(0, 4), "good": torch.ones(3)}
    with SummaryWriter(tmp_path) as writer:
        sink = TensorBoardSink(writer)
        with pytest.warns(UserWarning, match="'bad'") as caught:
            for step in range(4):
                sink.write(captured(step, nothing))
    read = board(tmp_path)
    assert len(caught) == 1
    assert read.Tags()["histograms"] == ["act_hist/good"]
    assert scalars(read, "act_nonfinite_fraction/bad") == dict.fromkeys(range(4), 1.0)
    assert scalars(read, "capture/histograms_skipped") == dict.fromkeys(range(4), 2.0)


def test_huge_values_have_a_histogram(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        TensorBoardSink(writer).write(captured(0, {"a": torch.tensor([1e300, -1e300], dtype=torch.float64)}))
    shown = board(tmp_path).Histograms("act_hist/a")[0].histogram_value
    assert sum(shown.bucket) == shown.num == 2 and math.isfinite(shown.sum_squares)


def test_the_writer_stays_open_and_no_other_run_appears(tmp_path: Path) -> None:
    writer = SummaryWriter(tmp_path)
    sink = TensorBoardSink(writer)
    sink.write(captured(0, {"a": torch.ones(2)}))
    sink.close()
    writer.add_scalar("loss", 1.0, 1)
    writer.close()
    assert scalars(board(tmp_path), "loss") == {1: 1.0}
    assert len([path for path in tmp_path.rglob("*") if path.is_file()]) == 1


def test_steps_may_go_back(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        sink = TensorBoardSink(writer, histograms=0)
        for step in (10, 7, 8):
            sink.write(captured(step, {"a": torch.full((2,), float(step))}))
    assert scalars(board(tmp_path), "act_mean/a") == {7: 7, 8: 8, 10: 10}


def test_a_sink_asks_for_what_it_shows_and_nothing_else() -> None:
    needs = TensorBoardSink(SummaryWriterLike(), histograms=32, statistics=["mean"]).needs
    assert needs.summaries.statistics == ("mean",) and needs.summaries.histogram_bins == 32
    assert not needs.payloads
    pictures = TensorBoardSink(SummaryWriterLike(), report=ReportOptions(images=("conv",)))
    assert pictures.needs.payloads


def test_a_text_is_written_where_texts_are_taken(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        write_text(writer, "config", "```yaml\nwidth: 3\n```", 5)
    write_text(object(), "config", "nothing happens")
    assert "width: 3" in text(board(tmp_path), "config")


class SummaryWriterLike:
    """The methods of a writer."""

    def __getattr__(self, name: str) -> object:
        return lambda *args, **kwargs: None
