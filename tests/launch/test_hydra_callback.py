"""The snapshot callback, from the command line of an app that knows nothing of it."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

APP = Path(__file__).parent / "small_app" / "app.py"
SNAPSHOT = "hydra/callbacks=[tl_snapshot]"
BY_PATH = "+hydra.callbacks.snapshot._target_=tl_integrations.launch.hydra_callback.SnapshotCallback"


def run_app(folder: Path, *arguments: str, code: int = 0) -> str:
    done = subprocess.run(
        [
            sys.executable,
            str(APP),
            *arguments,
            f"hydra.run.dir={folder}/run",
            f"hydra.sweep.dir={folder}/sweep",
        ],
        cwd=folder,
        env={**os.environ, "TL_TEST_SECRET": "hunter2"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=120,
    )
    assert done.returncode == code, done.stdout
    return done.stdout


def facts(folder: Path) -> dict[str, Any]:
    return json.loads((folder / ".hydra" / "provenance.json").read_text())


@pytest.mark.parametrize("choice", [SNAPSHOT, BY_PATH], ids=["as a group option", "by import path"])
def test_the_run_folder_gets_the_pinned_config_and_where_it_came_from(choice: str, tmp_path: Path) -> None:
    run_app(tmp_path, choice, "model.depth=50", "+extra={_target_: builders.sgd}")
    written = yaml.safe_load((tmp_path / "run" / ".hydra" / "resolved.yaml").read_text())
    assert written["model"]["depth"] == 50
    assert written["extra"] == {"_target_": "builders.sgd", "lr": 0.1, "momentum": 0.0}, (
        "what the command line left to a default is written out"
    )
    assert "hydra" not in written
    said = facts(tmp_path / "run")
    assert said["overrides"] == ["model.depth=50", "+extra={_target_: builders.sgd}"]
    assert said["status"] == "completed"
    assert said["seconds"] > 0
    assert said["versions"]["hydra-core"]
    assert len(said["config_sha256"]) == 64


def test_a_secret_behind_an_interpolation_is_never_written(tmp_path: Path) -> None:
    run_app(tmp_path, SNAPSHOT, "+token=${oc.env:TL_TEST_SECRET}")
    files = [path for path in (tmp_path / "run").rglob("*") if path.is_file()]
    assert any("${oc.env:TL_TEST_SECRET}" in path.read_text() for path in files)
    assert not any("hunter2" in path.read_text() for path in files)


def test_a_failed_job_is_recorded_as_failed_and_keeps_its_exit_code(tmp_path: Path) -> None:
    assert "a seed is not negative" in run_app(tmp_path, SNAPSHOT, "seed=-1", code=1)
    assert facts(tmp_path / "run")["status"] == "failed"


def test_each_job_of_a_sweep_has_its_own_snapshot(tmp_path: Path) -> None:
    run_app(tmp_path, "-m", SNAPSHOT, "seed=1,2")
    for number, seed in enumerate((1, 2)):
        folder = tmp_path / "sweep" / str(number)
        assert yaml.safe_load((folder / ".hydra" / "resolved.yaml").read_text())["seed"] == seed
        assert facts(folder)["overrides"] == [f"seed={seed}"]


@pytest.mark.parametrize("failing", ["AtStart", "AtEnd"])
def test_a_failing_callback_is_a_warning_and_the_job_keeps_its_exit_code(
    failing: str, tmp_path: Path
) -> None:
    """Case C61."""
    target = f"+hydra.callbacks.snapshot._target_=raising.{failing}"
    said = run_app(tmp_path, "-m", target, "seed=1,2")
    assert "the disk is full" in said
    assert "seed=1" in said
    assert "seed=2" in said
    run_app(tmp_path, target, "seed=-1", code=1)


def test_a_snapshot_that_cannot_be_written_says_so_in_the_log(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "records").write_text("a file where the folder should be")
    said = run_app(tmp_path, SNAPSHOT, "hydra.output_subdir=null", "hydra/job_logging=default")
    assert (tmp_path / "run" / ".hydra" / "resolved.yaml").exists(), "also where Hydra keeps no record itself"
    (tmp_path / "run" / ".hydra" / "provenance.json").unlink()
    (tmp_path / "run" / ".hydra" / "provenance.json").mkdir()
    said = run_app(tmp_path, SNAPSHOT, "hydra.output_subdir=null")
    assert "The config snapshot in" in said
    assert "[ERROR]" in said
    assert "IsADirectoryError" in (tmp_path / "run" / ".hydra" / "resolved.FAILED").read_text()
