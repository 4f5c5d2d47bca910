"""The demo, as a user runs it: what it prints, what it leaves behind, and that what it recorded is true."""

import copy
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import lightning.pytorch as pl
import pytest
import torch
import yaml
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

import tl_integrations as tl

EXAMPLES = Path(__file__).parents[2] / "examples"
SCHEDULE = 100
STEPS = [0, 100, 200, 300]


def run_example(folder: Path, *arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "train_digits.py"), *arguments],
        cwd=folder,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A sweep over both models: its folder and what it said."""
    folder = tmp_path_factory.mktemp("digits")
    said = run_example(
        folder,
        "-m",
        "model=mlp,conv",
        "model.depth=3",
        f"callbacks.trace.schedule={SCHEDULE}",
        f"hydra.sweep.dir={folder}/sweep",
    )
    return folder / "sweep", said


@pytest.fixture(scope="module")
def run(sweep: tuple[Path, str]) -> tuple[Path, str]:
    """The run of `mlp`: its folder and what it said."""
    return sweep[0] / "0", sweep[1]


def test_it_learns_the_digits_and_says_where_to_look(run: tuple[Path, str]) -> None:
    folder, said = run
    accuracies = re.findall(r"validation accuracy +([\d.]+)%", said)
    assert len(accuracies) == 2
    assert all(float(accuracy) > 95 for accuracy in accuracies)
    for place in ("run.tlspec", ".hydra/resolved.yaml", "last.ckpt"):
        assert f"{folder / place}\n" in said
        assert (folder / place).exists()
    assert f"tensorboard --logdir {folder}\n" in said


def test_the_bundle_holds_exactly_the_scheduled_steps_and_the_config(run: tuple[Path, str]) -> None:
    recording = tl.load(run[0] / "run.tlspec")
    assert recording.steps == STEPS
    assert recording.config["_target_"] == "digits_models.DigitClassifier"
    assert recording.config["net"]["_target_"] == "digits_models.mlp"
    assert recording.config["net"]["depth"] == 3


def test_the_traced_yaml_is_the_config_of_the_model(run: tuple[Path, str]) -> None:
    written = yaml.safe_load((run[0] / ".hydra" / "resolved.yaml").read_text())
    assert written == tl.load(run[0] / "run.tlspec").config


def test_tensorboard_has_scalars_and_histograms_of_every_layer_at_the_scheduled_steps(
    run: tuple[Path, str],
) -> None:
    events = EventAccumulator(
        str(run[0] / "tensorboard"), size_guidance={"scalars": 0, "histograms": 0}
    ).Reload()
    for layer in ("net.1", "net.4", "net.7", "net.10"):
        assert [event.step for event in events.Scalars(f"act_std/{layer}")] == STEPS
        assert [event.step for event in events.Histograms(f"act_hist/{layer}")] == STEPS


class KeepAt(pl.Callback):
    """What the model was, and was given, at one step of a run that nothing else looks into."""

    def __init__(self, step: int) -> None:
        self.step = step
        self.module: pl.LightningModule | None = None
        self.images: Tensor | None = None

    def on_train_batch_start(
        self, trainer: Any, module: pl.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if trainer.global_step == self.step:
            self.module = copy.deepcopy(module)
            self.images = batch[0].clone()


def test_a_recorded_activation_is_an_independent_forward_of_the_same_weights(
    run: tuple[Path, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(EXAMPLES)
    from digits_models import DigitClassifier, Digits, mlp

    pl.seed_everything(0, verbose=False)
    keep = KeepAt(SCHEDULE)
    trainer = pl.Trainer(
        max_epochs=15,
        max_steps=SCHEDULE + 1,
        accelerator="cpu",
        callbacks=[keep],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(DigitClassifier(mlp(depth=3)), Digits())
    expected = keep.module.net[1](keep.module.net[0](keep.images))
    recorded = tl.load(run[0] / "run.tlspec").at(SCHEDULE)["net.1"].out
    assert torch.equal(recorded, expected)


def test_a_sweep_over_the_models_gives_each_job_a_folder_of_its_own(sweep: tuple[Path, str]) -> None:
    runs = tl.load_runs(f"{sweep[0]}/*/run.tlspec")
    nets = [run.config["net"] for run in runs.values()]
    assert [net["_target_"] for net in nets] == ["digits_models.mlp", "digits_models.conv"]
    assert [run.steps for run in runs.values()] == [STEPS, STEPS]


def test_tensorboard_has_a_heat_map_of_the_whole_run(run: tuple[Path, str]) -> None:
    events = EventAccumulator(str(run[0] / "tensorboard"), size_guidance={"images": 0}).Reload()
    assert [event.step for event in events.Images("heat_map/act_std")][-1] == STEPS[-1]


BUILD_WITHOUT_US = """
import sys
sys.modules["tl_integrations"] = None  # importing it fails
import hydra.utils, omegaconf
for name in ("mlp", "conv"):
    net = hydra.utils.instantiate(omegaconf.OmegaConf.load(f"conf/model/{name}.yaml"))
    print(name, sum(parameter.numel() for parameter in net.parameters()))
try:
    import tl_integrations
except ImportError:
    print("without us")
"""


def test_its_exported_yaml_builds_without_this_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(EXAMPLES))
    command = Path(sys.executable).with_name("tl-integrations")
    for arguments in (
        [command, "config", "export", "digits_configs", "--out", "conf"],
        [command, "config", "export", "digits_configs", "--out", "conf", "--check"],
    ):
        subprocess.run(arguments, cwd=tmp_path, check=True, timeout=120)
    built = subprocess.run(
        [sys.executable, "-c", BUILD_WITHOUT_US],
        cwd=tmp_path,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        timeout=120,
    )
    monkeypatch.syspath_prepend(EXAMPLES)
    from digits_models import conv, mlp

    sizes = [sum(parameter.numel() for parameter in build().parameters()) for build in (mlp, conv)]
    assert built.stdout.splitlines() == [f"mlp {sizes[0]}", f"conv {sizes[1]}", "without us"]
