"""A step's values in one event, and writers that are told one by one."""

import math
from pathlib import Path
from typing import Any

import torch
from torch.utils.tensorboard import SummaryWriter

from tests.reporting.captures import board, scalars
from tl_integrations.capture.events import Histogram
from tl_integrations.capture.statistics import Summariser, collect
from tl_integrations.options import SummaryOptions
from tl_integrations.reporting.step_event import write_histograms, write_scalars


class Telling(SummaryWriter):
    """A user's writer that wants to know of every value."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.told: list[str] = []

    def add_scalar(self, tag: str, *args: Any, **kwargs: Any) -> None:
        self.told.append(tag)
        super().add_scalar(tag, *args, **kwargs)

    def add_histogram_raw(self, tag: str, *args: Any, **kwargs: Any) -> None:
        self.told.append(tag)
        super().add_histogram_raw(tag, *args, **kwargs)


def histogram(value: torch.Tensor) -> Histogram:
    (found,) = collect([Summariser(SummaryOptions(histogram_bins=64)).measure(value)])
    assert found is not None and found[1] is not None
    return found[1]


def test_both_ways_are_read_back_alike(tmp_path: Path) -> None:
    values = {"act_mean/a": 1.5, "act_mean/b": -3.0}
    histograms = {"act_hist/a": histogram(torch.randn(500)), "act_hist/b": histogram(torch.ones(7))}
    writers = [SummaryWriter(str(tmp_path / "plain")), Telling(str(tmp_path / "telling"))]
    for writer in writers:
        write_scalars(writer, values, 3)
        write_histograms(writer, histograms, 3)
        writer.close()
    plain, telling = board(tmp_path / "plain"), board(tmp_path / "telling")
    for name, value in values.items():
        assert scalars(plain, name) == scalars(telling, name) == {3: value}
    for name, expected in histograms.items():
        (event,) = plain.Histograms(name)
        read = event.histogram_value
        assert event.step == 3 and read == telling.Histograms(name)[0].histogram_value
        assert sum(read.bucket) == read.num == expected.num
        assert (read.min, read.max, read.sum) == (expected.minimum, expected.maximum, expected.total)
    assert writers[1].told == [*values, *histograms]


def test_empty_buckets_are_left_out_at_the_ends_and_joined_between(tmp_path: Path) -> None:
    found = histogram(torch.tensor([-1.0, -1.0, 2.0]))
    with SummaryWriter(str(tmp_path)) as writer:
        write_histograms(writer, {"h": found}, 0)
    read = board(tmp_path).Histograms("h")[0].histogram_value
    assert list(read.bucket) == [2, 0, 1]
    low, middle, high = read.bucket_limit
    assert low < 0 < middle <= 2 < high and {low, middle, high} <= set(found.edges)


def test_infinite_sums_become_the_largest_number(tmp_path: Path) -> None:
    found = histogram(torch.tensor([3e38, 3e38]))
    assert found.squares == math.inf
    with SummaryWriter(str(tmp_path)) as writer:
        write_histograms(writer, {"h": found}, 0)
    assert math.isfinite(board(tmp_path).Histograms("h")[0].histogram_value.sum_squares)


def test_nothing_to_write_makes_no_event(tmp_path: Path) -> None:
    with SummaryWriter(str(tmp_path)) as writer:
        write_scalars(writer, {}, 0)
        write_histograms(writer, {}, 0)
    assert board(tmp_path).Tags()["scalars"] == []


def test_a_closed_writer_opens_a_new_file_as_torch_does(tmp_path: Path) -> None:
    writer = SummaryWriter(str(tmp_path))
    writer.close()
    write_scalars(writer, {"a": 1.0}, 2)
    writer.close()
    assert scalars(board(tmp_path), "a") == {2: 1.0}
