"""A project laid out like lightning-hydra-template gets the callback by naming it."""

import subprocess
import sys
from pathlib import Path

import tl_integrations as tl

PROJECT = Path(__file__).parent / "template_project"


def test_a_projects_own_callbacks_and_ours_are_chosen_side_by_side(tmp_path: Path) -> None:
    done = subprocess.run(
        [
            sys.executable,
            str(PROJECT / "src" / "train.py"),
            "callbacks=[default,trace]",
            "callbacks.trace.schedule=2",
            "callbacks.trace.storage=run.tlspec",
            "callbacks.trace.save=[net]",
            f"hydra.run.dir={tmp_path}",
        ],
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "callbacks: ['EarlyStopping', 'TraceCallback']" in done.stdout
    recording = tl.load(tmp_path / "run.tlspec")
    assert recording.steps == [0, 2]
    assert [record.address for record in recording.at(2)] == ["net"]
    # Nothing of the model is decorated, so the bundle carries the job's own config.
    assert recording.config["model"]["_target_"] == "src.models.small.SmallModule"
    assert recording.config["callbacks"]["trace"]["schedule"] == 2
