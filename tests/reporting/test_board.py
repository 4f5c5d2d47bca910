"""Pictures and layouts on a board, read back from its files."""

import io
import re
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from tensorboard.plugins.custom_scalar.layout_pb2 import Layout
from torch.utils.tensorboard import SummaryWriter

from tests.reporting.captures import Kept, board, captured, record
from tl_integrations.options import ReportOptions
from tl_integrations.reporting import TensorBoardSink


def pixels(event: object) -> np.ndarray:
    return np.array(Image.open(io.BytesIO(event.encoded_image_string)))  # type: ignore[attr-defined]


def test_a_heat_map_per_statistic_is_drawn_when_the_run_ends(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        sink = TensorBoardSink(writer, statistics=["std", "mean"], report=ReportOptions(heat_map=True))
        for step in range(0, 50, 10):
            sink.write(captured(step, {f"layer.{k}": torch.randn(4) for k in range(6)}))
        sink.close()
    read = board(tmp_path)
    assert sorted(read.Tags()["images"]) == ["heat_map/act_mean", "heat_map/act_std"]
    (event,) = read.Images("heat_map/act_std")
    assert event.step == 40 and (event.height, event.width) == pixels(event).shape[:2]


def test_flushing_every_epoch_draws_a_long_run_a_few_times(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        sink = TensorBoardSink(writer, statistics=["std"], report=ReportOptions(heat_map=True))
        for step in range(40):
            sink.write(captured(step, {"a": torch.randn(4)}))
            sink.flush()
        sink.close()
    assert [event.step for event in board(tmp_path).Images("heat_map/act_std")] == [0, 2, 6, 14, 30, 39]


def test_feature_maps_are_drawn_of_the_layers_asked_for(tmp_path: Path) -> None:
    value = torch.randn(2, 5, 8, 8)
    records = [record(name, value, payload=Kept(value)) for name in ("conv1", "conv2", "fc")]
    with SummaryWriter(tmp_path) as writer:
        TensorBoardSink(writer, report=ReportOptions(images=("conv*",))).write(captured(3, records))
    read = board(tmp_path)
    assert sorted(read.Tags()["images"]) == ["act_image/conv1", "act_image/conv2"]
    assert read.Images("act_image/conv1")[0].step == 3


@pytest.mark.parametrize("group_by", ["statistic", "layer"])
def test_the_custom_scalars_page_has_a_chart_per_statistic(tmp_path: Path, group_by: str) -> None:
    report = ReportOptions(group_by=group_by, prefix="x.")  # type: ignore[arg-type]
    with SummaryWriter(tmp_path) as writer:
        sink = TensorBoardSink(writer, statistics=["std"], report=report)
        for step in range(3):
            sink.write(captured(step, {"a": torch.ones(2), "b": torch.ones(2)}))
    read = board(tmp_path)
    (layout,) = read.Tensors("custom_scalars__config__")
    pattern = layout_pattern(layout.tensor_proto.string_val[0])
    assert [tag for tag in read.Tags()["scalars"] if re.search(pattern, tag)] == (
        ["x.act_std/a", "x.act_std/b"] if group_by == "statistic" else ["x.a/act_std", "x.b/act_std"]
    )


def layout_pattern(serialized: bytes) -> str:
    layout = Layout.FromString(serialized)
    assert layout.category[0].title == "x.activations" and layout.category[0].chart[0].title == "std"
    return layout.category[0].chart[0].multiline.tag[0]


def test_a_single_layer_needs_no_layout(tmp_path: Path) -> None:
    with SummaryWriter(tmp_path) as writer:
        TensorBoardSink(writer).write(captured(0, {"a": torch.ones(2)}))
    assert board(tmp_path).Tags()["tensors"] == []


def test_globs_of_images_stop_at_a_dot(tmp_path: Path) -> None:
    maps = torch.ones(1, 1, 2, 2)
    records = [record(name, maps, payload=Kept(maps)) for name in ("a.b", "a.b.c")]
    with SummaryWriter(tmp_path) as writer:
        TensorBoardSink(writer, report=ReportOptions(images=("a.*",))).write(captured(0, records))
    assert board(tmp_path).Tags()["images"] == ["act_image/a.b"]
