"""Sweeps through launchers that run jobs elsewhere: stored configs travel, each job leaves its own bundle.

A sweep of the small app through joblib always runs. The sweeps that train, through joblib, submitit and Ray,
run in `make test-launchers`, which has an environment of its own.
"""

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import tl_integrations as tl

EXAMPLES = Path(__file__).parents[2] / "examples"
SMALL_APP = Path(__file__).parent / "small_app" / "app.py"
LAUNCHERS = {
    "joblib": ["hydra/launcher=joblib", "hydra.launcher.n_jobs=2"],
    "submitit_local": ["hydra/launcher=submitit_local", "hydra.launcher.timeout_min=10"],
    "ray": ["hydra/launcher=ray", "+hydra.launcher.ray.init.num_cpus=2"],
}
PLUGINS = {
    "joblib": "hydra_joblib_launcher",
    "submitit_local": "hydra_submitit_launcher",
    "ray": "hydra_ray_launcher",
}


def missing(launcher: str) -> str:
    """Why the launcher's training sweep does not run here; empty when it does."""
    if importlib.util.find_spec(f"hydra_plugins.{PLUGINS[launcher]}") is None:
        return f"{PLUGINS[launcher]} is not installed: make test-launchers"
    return "" if os.environ.get("TL_LAUNCHERS") else "trains four models: make test-launchers"


def sweep(app: Path, folder: Path, *arguments: str) -> str:
    """Output of a sweep of `app` into `folder`; its workers find the app's modules by name, as they must."""
    done = subprocess.run(
        [sys.executable, str(app), "-m", *arguments, f"hydra.sweep.dir={folder}/multirun"],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(app.parent)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_stored_configs_travel_to_joblib_workers(tmp_path: Path) -> None:
    pytest.importorskip("hydra_plugins.hydra_joblib_launcher")
    sweep(
        SMALL_APP,
        tmp_path,
        *LAUNCHERS["joblib"],
        "hydra/callbacks=[tl_snapshot]",
        "model=resnet,vgg",
        "model/norm=layer",
        "optimizer=adam,sgd",
    )
    written = [
        yaml.safe_load((tmp_path / "multirun" / str(job) / ".hydra" / "resolved.yaml").read_text())
        for job in range(4)
    ]
    assert [(config["model"]["name"], config["optimizer"]["_target_"]) for config in written] == [
        ("resnet", "builders.adam"),
        ("resnet", "builders.sgd"),
        ("vgg", "builders.adam"),
        ("vgg", "builders.sgd"),
    ]
    assert all(config["model"]["norm"]["kind"] == "layer" for config in written)


@pytest.mark.slow
@pytest.mark.timeout(1000)
@pytest.mark.parametrize(
    "launcher",
    [
        pytest.param(name, marks=pytest.mark.skipif(bool(missing(name)), reason=missing(name)))
        for name in LAUNCHERS
    ],
)
def test_a_sweep_of_four_trainings_leaves_four_bundles(launcher: str, tmp_path: Path) -> None:
    sweep(
        EXAMPLES / "train_digits.py",
        tmp_path,
        *LAUNCHERS[launcher],
        "model=mlp,conv",
        "model.depth=1,2",
        "epochs=1",
        "callbacks.trace.schedule=10",
    )
    runs = tl.load_runs(f"{tmp_path}/multirun/**/run.tlspec")
    assert [Path(path).parent.name for path in runs] == ["0", "1", "2", "3"]
    assert [(row["net._target_"], row["net.depth"]) for row in runs.rows()] == [
        ("digits_models.mlp", 1),
        ("digits_models.mlp", 2),
        ("digits_models.conv", 1),
        ("digits_models.conv", 2),
    ]
    assert all(run.steps == [0, 10, 20] for run in runs.values())
