"""Every line about tracing of "Speed-Optimized Defaults", as written, with its outcome."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tl_integrations as tl
from tl_integrations.errors import PayloadUnavailableError
from tl_integrations.options import CaptureOptions


class SeedModel(nn.Module):
    """What the page's snippets need at once: a convolution before a relu, linear layers, an `encoder`."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3, padding=1)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(4, 4, 3, padding=1)
        self.pool = nn.MaxPool2d(2)
        self.encoder = nn.Sequential(nn.Linear(64, 16), nn.ReLU(), nn.Linear(16, 8))
        self.head = nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        x = self.relu(self.conv(x))
        x = self.pool(self.conv2(x)).flatten(1)
        out: Tensor = self.head(self.encoder(x))
        return out


class Looped(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.attn = nn.Linear(4, 4)
        self.out = nn.Linear(4, 4)
        self.forwards = 0

    def forward(self, x: Tensor) -> Tensor:
        self.forwards += 1
        for _ in range(3):
            x = torch.relu(self.attn(x))
        result: Tensor = self.out(x)
        return result


@pytest.fixture
def model() -> SeedModel:
    torch.manual_seed(0)
    return SeedModel().eval()


@pytest.fixture
def x() -> Tensor:
    return torch.randn(2, 3, 8, 8)


def test_trace_saves_what_a_selector_names_and_describes_the_rest(model: SeedModel, x: Tensor) -> None:
    log = tl.trace(
        model,
        x,
        save=tl.func("linear"),
        capture=tl.options.CaptureOptions(save_source_context=False),
    )
    assert log.saved_layers == ["linear_1_6", "linear_2_8", "linear_3_9", "output_1"]
    assert torch.equal(log["linear_3_9"].out, model(x)) and log.num_ops == 9
    assert log["relu_1_2"].shape == (2, 4, 8, 8)
    with pytest.raises(PayloadUnavailableError, match="relu_1_2"):
        _ = log["relu_1_2"].out


def test_file_and_line_are_kept_and_the_text_is_read_later(model: SeedModel, x: Tensor) -> None:
    log = tl.trace(model, x, save=tl.func("linear"), capture=CaptureOptions(save_source_context=False))
    op = log["flatten_1_5"].ops[0]
    assert Path(op.file) == Path(__file__) and op.source == "x = self.pool(self.conv2(x)).flatten(1)"
    assert op.record is None and log.log.lines[op.line].source == ""
    kept = tl.trace(model, x, capture=CaptureOptions(save_source_context=True))
    assert kept.log.lines[op.line].source == "x = self.pool(self.conv2(x)).flatten(1)"


def test_a_trace_from_a_recording_is_the_trace(model: SeedModel, x: Tensor) -> None:
    relu_trace = tl.trace(model, x, save=tl.func("relu"))
    recording = tl.record(model, x, save=tl.func("relu"))
    trace_from_recording = recording.to_trace()
    assert trace_from_recording.graph_id == relu_trace.graph_id
    assert trace_from_recording.saved_layers == relu_trace.saved_layers == ["relu_1_2", "relu_2_7"]
    assert trace_from_recording.compare(relu_trace) is None
    assert trace_from_recording.total_flops_forward == relu_trace.total_flops_forward > 0
    with pytest.raises(PayloadUnavailableError, match=r"'conv2d_1_1'.*save="):
        _ = trace_from_recording["conv2d_1_1"].out


def test_windowed_selection_saves_only_the_convolution_before_a_relu(model: SeedModel, x: Tensor) -> None:
    conv_before_relu = tl.func("conv2d") & tl.followed_by(tl.func("relu"))
    windowed = tl.trace(
        model,
        x,
        save=conv_before_relu,
        capture=CaptureOptions(lookback=4, lookback_payload_policy="detached_raw"),
    )
    assert windowed.saved_layers == ["conv2d_1_1"]
    assert torch.equal(windowed["conv2d_1_1"].out, model.conv(x))


def test_a_streamed_trace_lies_in_a_bundle(
    model: SeedModel, x: Tensor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    streamed = tl.trace(model, x, save=tl.in_module("encoder"), storage=tl.to_disk("run.tlspec"))
    loaded = tl.load("run.tlspec").to_trace()
    assert streamed.saved_layers == loaded.saved_layers == ["linear_1_6", "relu_2_7", "linear_2_8"]
    assert loaded.graph_id == streamed.graph_id and loaded.compare(streamed) is None
    assert torch.equal(loaded["relu_2_7"].out, streamed["relu_2_7"].out)


def test_a_trace_that_fails_says_so_and_keeps_what_ran(model: SeedModel) -> None:
    with pytest.raises(tl.errors.TraceCaptureError) as caught:
        tl.trace(model, torch.randn(2, 3, 6, 6))
    assert isinstance(caught.value.__cause__, RuntimeError)
    partial = caught.value.partial_trace
    assert isinstance(partial, tl.Trace) and partial.outcome.status == "failed"
    assert [op.label for op in partial.ops if op.kind == "op"][-1] == "flatten_1_5"
    assert partial["relu_1_2"].out.shape == (2, 4, 6, 6) and partial.output_layers == []


def test_final_labels_save_all_passes_or_one_in_one_forward() -> None:
    model, x = Looped().eval(), torch.randn(2, 4)
    every = tl.trace(model, x, save=["attn"])
    assert [op.label for op in every.ops if op.has_saved_activation] == [f"linear_1_1:{k}" for k in (1, 2, 3)]
    second = tl.trace(model, x, save=["attn:2"])
    assert [op.label for op in second.ops if op.has_saved_activation] == ["linear_1_1:2"]
    assert torch.equal(second["attn:2"].out, every["linear_1_1:2"].out)
    assert model.forwards == 2


def test_a_trace_of_positions_goes_to_a_storage_whole(tmp_path: Path) -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(3, 4)
    traced = tl.trace(model, x, save=[0, -2], storage=tl.to_disk(tmp_path / "run.tlspec"))
    loaded = tl.load(tmp_path / "run.tlspec")
    saved = [op for op in traced.ops if op.has_saved_activation]
    assert len(saved) == 2
    assert [record.label for record in loaded if record.payload] == [op.label.split(":")[0] for op in saved]
