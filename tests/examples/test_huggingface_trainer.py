"""The Trainer's own forwards are what was captured."""

from pathlib import Path

import pytest
import torch

import tl_integrations as tl

pytest.importorskip("transformers")


def test_the_scheduled_steps_of_the_trainer_are_captured(
    example, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    accuracy = example("huggingface_trainer").main(tmp_path, steps=12)
    assert 0 <= accuracy <= 1
    recording = tl.load(tmp_path / "run.tlspec")
    assert recording.steps == [0, 1, 10]
    assert torch.Size((32, 64, 64)) == recording.at(10)["bert.encoder.layer.1"].out.shape
    assert torch.Size((32, 2)) == recording.at(10)["classifier"].out.shape
    said = capsys.readouterr().out
    assert "train: 4 layers, captured at 3 steps from 0 to 10" in said
    assert "train_runtime" not in said
