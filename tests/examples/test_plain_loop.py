"""The loop leaves a bundle, curves and a table of what happened at the scheduled steps."""

from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator


def test_the_bundle_and_the_curves_hold_the_scheduled_steps(
    example, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recording = example("plain_loop").main(tmp_path, epochs=8)
    steps = [0, 1, 2, 5, 50]
    assert recording.steps == steps
    assert recording.outcome.status == "complete"
    for step in steps:
        at = recording.at(step)
        assert torch.equal(at["1"].out, at["0"].out.relu())
        # The gradient of a relu's input is the gradient of its output where the input is positive.
        assert torch.equal(at["0"].grad, at["1"].grad * (at["0"].out > 0))
    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("act_std/2")] == steps
    said = capsys.readouterr().out
    assert "train: 5 layers, captured at 5 steps from 0 to 50" in said
    assert f"tl-integrations show {tmp_path / 'run.tlspec'}" in said


def test_it_runs_twice_into_the_same_folder(example, tmp_path: Path) -> None:
    module = example("plain_loop")
    module.main(tmp_path, epochs=1)
    assert module.main(tmp_path, epochs=1).steps == [0, 1, 2, 5]
