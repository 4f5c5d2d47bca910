"""The lines about sparse recording of the reference page, as a user writes them."""

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tl_integrations as tl
from tl_integrations.options import CaptureOptions


class Encoder(nn.Module):
    """A convolution directly followed by a ReLU, a child called encoder, attention called twice."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.encoder = nn.Sequential(nn.Linear(32, 8), nn.ReLU(), nn.Linear(8, 8))
        self.attn = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.conv(x)).flatten(1)
        return self.attn(self.attn(self.encoder(h)))


model, x = Encoder(), torch.randn(2, 1, 4, 4)


def test_selected_layers_of_a_trace() -> None:
    log = tl.trace(
        model,
        x,
        save=tl.func("linear"),
        capture=tl.options.CaptureOptions(save_source_context=False),
    )
    assert len(log.saved_layers) >= 3
    assert tl.options.CaptureOptions().save_source_context is False


def test_the_default_policy_holds_metadata_only() -> None:
    assert CaptureOptions().lookback_payload_policy == "metadata_only"
    save = tl.func("relu") & tl.preceded_by(tl.func("conv2d"))
    assert len(tl.record(model, x, save=save, capture=CaptureOptions(lookback=2))) == 1


def test_record_keeps_what_a_trace_keeps() -> None:
    relu_trace = tl.trace(model, x, save=tl.func("relu"))
    recording = tl.record(model, x, save=tl.func("relu"))
    assert len(recording) == 2
    assert all(torch.equal(relu_trace[record.label].out, record.out) for record in recording)


def test_a_windowed_selection() -> None:
    conv_before_relu = tl.func("conv2d") & tl.followed_by(tl.func("relu"))
    capture = CaptureOptions(lookback=4, lookback_payload_policy="detached_raw")
    windowed = tl.record(model, x, save=conv_before_relu, capture=capture)
    assert [record.address for record in windowed] == ["conv"]
    assert torch.equal(windowed[0].out, model.conv(x))


def test_a_recording_streams_to_disk(tmp_path: Path) -> None:
    streamed = tl.record(model, x, save=tl.in_module("encoder"), storage=tl.to_disk(tmp_path / "run.tlspec"))
    loaded = tl.load(tmp_path / "run.tlspec")
    assert len(streamed) == len(loaded) == 3
    assert all(torch.equal(a.out, b.out) for a, b in zip(streamed, loaded, strict=True))


def test_save_is_the_only_spelling_of_a_predicate() -> None:
    assert len(tl.record(model, x, save=lambda event: event.type == "linear")) == 4
    with pytest.raises(TypeError):
        tl.record(model, x, keep_op=lambda event: True)  # type: ignore[call-overload]


class Breaks(Encoder):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x).view(3, 7)


def test_raise_is_the_historical_default() -> None:
    with pytest.raises(RuntimeError, match="shape") as caught:
        tl.record(Breaks(), x, save=tl.func("relu"))
    assert not hasattr(caught.value, "partial_recording")


def test_attach_partial_re_raises_the_original_exception() -> None:
    with pytest.raises(RuntimeError, match="shape") as caught:
        tl.record(Breaks(), x, save=tl.func("relu"), on_forward_error="attach_partial")
    assert caught.value.partial_recording.status == "partial_error"


def test_return_partial_refuses_its_output() -> None:
    partial = tl.record(Breaks(), x, save=tl.func("relu"), on_forward_error="return_partial")
    with pytest.raises(tl.errors.RecordingFailedError) as caught:
        partial.output  # noqa: B018 - reading it is what fails
    assert caught.value.code == "output_forward_failed"
    assert partial.status == "partial_error" and partial.failed
    assert "shape" in partial.error_repr and "view" in partial.error_traceback
    assert partial.num_committed_ops == 8
    assert partial.last_successful_op_label is not None
    assert partial.last_successful_op_label.startswith("linear_4_")
    assert partial.last_event_func == "view"
    for refused in (partial.to_trace, lambda: partial.backward(torch.ones(1, requires_grad=True).sum())):
        with pytest.raises(tl.errors.RecordingFailedError):
            refused()


def test_a_manual_recorder_returns_none_and_exposes_the_partial() -> None:
    with tl.Recorder(Breaks(), save=tl.func("relu"), on_forward_error="return_partial") as recorder:
        assert recorder(x) is None
    assert recorder.recording.failed and len(recorder.recording) == 2


def test_final_labels_and_passes() -> None:
    all_passes = tl.record(model, x, save=["attn"])
    second = tl.record(model, x, save=["attn:2"])
    assert len(all_passes) == 2 and len(second) == 1
    assert torch.equal(second[0].out, all_passes[1].out)
    assert len(tl.record(model, x, save=["relu_1_2"])) == 1


def test_recording_runs_the_forward_once() -> None:
    counted = Encoder()
    calls: list[int] = []
    counted.register_forward_hook(lambda *args: calls.append(1))
    tl.record(counted, x, save=["attn", "relu_1_2"])
    assert calls == [1]


def test_backward_fills_gradients_of_what_was_kept() -> None:
    recording = tl.record(model, x, save=tl.func("relu"), gradients=True)
    assert recording.backward(recording.output.sum()) is recording
    assert [record.grad.shape for record in recording] == [record.shape for record in recording]
