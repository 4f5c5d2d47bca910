"""TraceCallback beside what else a Trainer does: tuners, loaders, limits, both package names."""

import glob
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import pytorch_lightning
import torch
from fitting import fit, leftovers, quiet_trainer
from lightning.pytorch import Callback
from lightning.pytorch.callbacks import BatchSizeFinder, EarlyStopping, LearningRateFinder
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from lightning.pytorch.tuner import Tuner
from packaging.version import Version
from torch import Tensor, nn
from toy_models import LitNet, NoisyNet, random_loader

import tl_integrations as tl
from tl_integrations import language as L
from tl_integrations.callbacks import ConfigCallback, TraceCallback
from tl_integrations.capture.sinks import MemorySink
from tl_integrations.errors import OptionError
from tl_integrations.options import SummaryOptions

pytestmark = [
    pytest.mark.filterwarnings("ignore:`training_step` returned `None`"),
    pytest.mark.filterwarnings("ignore:Checkpoint directory"),
    pytest.mark.filterwarnings("ignore:You are using the `dataloader_iter` step flavor"),
    pytest.mark.filterwarnings("ignore:Found `dataloader_iter` argument"),
]


def steps_of(callback: TraceCallback) -> list[int | None]:
    return [capture.step for capture in callback.captures]


def test_a_step_that_takes_the_iterator_is_counted_by_the_trainer() -> None:
    class FromIterator(LitNet):
        def training_step(self, dataloader_iter: Any) -> Tensor:  # type: ignore[override]
            (x, y), _, _ = next(dataloader_iter)
            return nn.functional.mse_loss(self(x), y)

    callback = TraceCallback(schedule=3, save="net.act")
    fit([callback], FromIterator())
    assert steps_of(callback) == [0, 3, 6]


def test_a_step_without_a_loss_is_captured_all_the_same() -> None:
    class Skips(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor | None:  # type: ignore[override]
            loss = super().training_step(batch, batch_idx)
            return None if batch_idx == 2 else loss

    callback = TraceCallback(schedule=2, save="net.act")
    module = fit([callback], Skips())
    assert steps_of(callback) == [0, 2, 4, 6] and leftovers(module) == []


def test_several_train_loaders_make_one_step() -> None:
    class Two(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return sum((LitNet.training_step(self, batch[key], batch_idx) for key in batch), torch.zeros(()))

        def log(self, *arguments: Any, **options: Any) -> None:
            return

    sink = MemorySink()
    callback = TraceCallback(schedule=2, save="net.act", sinks=[sink])
    loaders = {"a": random_loader(4), "b": random_loader(4)}
    quiet_trainer([callback]).fit(Two(), loaders)
    assert steps_of(callback) == [0, 2]
    assert [record.pass_index for record in sink.recording.at(0)] == [1, 2]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"limit_train_batches": 4, "max_epochs": 2}, [0, 3, 6]),
        ({"overfit_batches": 2, "max_epochs": 4}, [0, 3, 6]),
        ({"max_steps": 5, "max_epochs": -1}, [0, 3]),
    ],
)
@pytest.mark.filterwarnings("ignore:You requested to overfit")
def test_steps_go_on_over_epochs_and_limits(options: dict[str, Any], expected: list[int]) -> None:
    callback = TraceCallback(schedule=3, save="net.act")
    fit([callback], **options)
    assert steps_of(callback) == expected


def test_an_interval_longer_than_an_epoch_fires() -> None:
    callback = TraceCallback(schedule=7, save="net.act")
    fit([callback], batches=5, max_epochs=3)
    assert steps_of(callback) == [0, 7, 14]


class Tunable(LitNet):
    def __init__(self) -> None:
        super().__init__()
        self.lr, self.batch_size = 0.01, 4

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=self.lr)

    def train_dataloader(self) -> Any:
        return random_loader(8, batch_size=self.batch_size)

    def val_dataloader(self) -> Any:
        return random_loader(1)


def test_the_learning_rate_finder_is_not_captured_and_the_fit_after_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    callback = TraceCallback(schedule=4, save="net.act", storage="run.tlspec")
    module = Tunable()
    trainer = quiet_trainer([callback], default_root_dir=str(tmp_path))
    Tuner(trainer).lr_find(module, num_training=5, update_attr=False)
    assert steps_of(callback) == [] and not (tmp_path / "run.tlspec").exists()
    trainer.fit(module)
    assert steps_of(callback) == [0, 4] and leftovers(module) == []


class LoggedSteps(Callback):
    """The steps that Lightning gives its loggers; a batch-size finder leaves them one ahead."""

    def __init__(self) -> None:
        self.seen: list[int] = []

    def on_train_batch_start(self, trainer: Any, *rest: Any) -> None:
        self.seen.append(trainer.fit_loop.epoch_loop._batches_that_stepped)


@pytest.mark.parametrize("finder", [LearningRateFinder, BatchSizeFinder])
def test_finders_as_callbacks_leave_the_schedule_on_the_loggers_steps(finder: Any, tmp_path: Path) -> None:
    options = {"num_training_steps": 4} if finder is LearningRateFinder else {"max_trials": 1}
    callback, logged = TraceCallback(schedule=4, save="net.act"), LoggedSteps()
    module = Tunable()
    trainer = quiet_trainer(
        [finder(**options), callback, logged], default_root_dir=str(tmp_path), max_steps=6
    )
    trainer.fit(module)
    # The learning rate finder of Lightning 2.4 counts its own trial steps against max_steps.
    assert len(logged.seen) == 6 or Version(pytorch_lightning.__version__) < Version("2.6")
    assert steps_of(callback) == [step for step in logged.seen if step % 4 == 0] != []
    assert leftovers(module) == []


def test_early_stopping_ends_a_complete_bundle(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    stop = EarlyStopping("loss", patience=0, mode="max", min_delta=100.0, check_on_train_epoch_end=True)
    fit([TraceCallback(schedule=4, save="net.act", storage=path), stop], max_epochs=5)
    recording = tl.load(path)
    assert recording.status == "complete" and recording.steps[:2] == [0, 4]


@pytest.mark.skipif(
    Version(pytorch_lightning.__version__) < Version("2.6"),
    reason="before 2.6 a Trainer of pytorch_lightning refuses every callback made for lightning.pytorch",
)
def test_callbacks_of_either_package_name_are_taken() -> None:
    class Old(pytorch_lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = NoisyNet()

        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return nn.functional.mse_loss(self.net(batch[0]), batch[1])

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.1)

    callbacks = [TraceCallback(schedule=3, save="net.act"), TraceCallback(schedule=4, save="net.enter")]
    module = Old()
    pytorch_lightning.Trainer(
        callbacks=callbacks,
        max_epochs=1,
        accelerator="cpu",
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    ).fit(module, random_loader(8))
    assert [steps_of(callback) for callback in callbacks] == [[0, 3, 6], [0, 4]]
    assert leftovers(module) == []


def test_without_a_logger_or_with_csv_only_training_goes_on(tmp_path: Path) -> None:
    for logger in (False, CSVLogger(str(tmp_path))):
        callback = TraceCallback(schedule=4, save="net.act", histograms=True)
        fit([callback], logger=logger, log_every_n_steps=1)
        assert steps_of(callback) == [0, 4]


def test_activations_that_are_not_finite_or_empty_do_not_stop_training(tmp_path: Path) -> None:
    class Bad(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.empty, self.leave = nn.Linear(8, 8), nn.Identity(), nn.Linear(8, 2)

        def forward(self, x: Tensor) -> Tensor:
            self.empty(x[:0])
            return self.leave(torch.relu(self.enter(x) * float("nan"))) * 0

    logger = TensorBoardLogger(str(tmp_path), name="tb", version=0)
    with pytest.warns(UserWarning) as caught:
        fit([TraceCallback(schedule=1, histograms=True)], LitNet(Bad()), logger=logger, log_every_n_steps=1)
    assert 1 <= len([w for w in caught if "istogram" in str(w.message)]) <= 2
    assert len(glob.glob(f"{tmp_path}/**/events*", recursive=True)) == 1


def test_history_is_kept_until_the_loss_spikes() -> None:
    class Spikes(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = super().training_step(batch, batch_idx)
            return loss * (1000.0 if batch_idx == 9 else 1.0)

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=1e-6)

    sink = MemorySink(summaries=SummaryOptions(statistics=("mean",)))
    callback = TraceCallback(
        schedule="always() | on_loss_spike(factor=20.0, window=5)", save="net.act", sinks=[sink], history=2
    )
    fit([callback], Spikes(), batches=12)
    assert [record.step for record in sink.recording] == [8, 9, 10]
    assert [record.payload is None for record in sink.recording] == [True, True, False]
    reason = next(capture.reason for capture in callback.captures if capture.step == 10)
    assert reason is not None and "step 9" in reason


def test_gradient_norm_and_update_ratio_are_those_of_the_optimizer_step() -> None:
    norms: list[float] = []

    class Norms(LitNet):
        def on_before_optimizer_step(self, optimizer: Any) -> None:
            weight = self.net.enter.weight
            norms.append(float(weight.grad.norm() * 0.1 / weight.detach().norm()))

    sink = MemorySink()
    fit([TraceCallback(schedule=2, save="net.enter", parameters=True, sinks=[sink])], Norms(), batches=4)
    rows = [r for r in sink.recording if r.io == "parameter" and r.address == "net.enter.weight"]
    assert [row.step for row in rows] == [0, 2]
    for row, expected in zip(rows, norms[::2], strict=True):
        assert row.statistics is not None
        assert row.statistics["update_ratio"] == pytest.approx(expected, rel=1e-3)


@pytest.mark.parametrize("microbatches", ["first", "all"])
def test_numbers_of_parameters_have_the_same_tags_on_every_step(microbatches: Any, tmp_path: Path) -> None:
    callback = TraceCallback(schedule=1, save="net.enter", parameters=True, microbatches=microbatches)
    logger = CSVLogger(str(tmp_path), name="csv", version="")
    fit([callback], batches=6, accumulate_grad_batches=2, logger=logger, log_every_n_steps=1)
    tags = (tmp_path / "csv" / "metrics.csv").read_text().splitlines()[0].split(",")
    named = [tag for tag in tags if tag.startswith("param_")]
    assert len(named) == 4 and not any("run_" in tag for tag in named)


def test_parameters_of_an_accumulated_step_wait_for_its_optimizer() -> None:
    sink = MemorySink()
    callback = TraceCallback(schedule=2, save="net.enter", parameters=True, sinks=[sink])
    fit([callback], batches=8, accumulate_grad_batches=2)
    assert steps_of(callback) == [0, 2]
    assert [record.step for record in sink.recording if record.address == "net.enter.weight"] == [0, 2]


@pytest.mark.parametrize(
    ("save", "expected"),
    [
        ("net.enter", {"net.enter.weight", "net.enter.bias"}),
        (
            ["net.norm", "net.leave"],
            {"net.norm.weight", "net.norm.bias", "net.leave.weight", "net.leave.bias"},
        ),
        ("in_module('net.enter')", {"net.enter.weight", "net.enter.bias"}),
        ("func('relu')", None),
        (None, None),
    ],
)
def test_only_parameters_of_the_captured_modules_are_watched(save: Any, expected: set[str] | None) -> None:
    sink, module = MemorySink(), LitNet()
    callback = TraceCallback(schedule=100, save=save, parameters=True, sinks=[sink], on_error="raise")
    fit([callback], module, batches=1)
    seen = {record.address for record in sink.recording if record.io == "parameter"}
    assert seen == (expected or {name for name, _ in module.named_parameters()})


def test_captured_modules_without_parameters_are_refused_before_step_0() -> None:
    with pytest.raises(OptionError, match=r"'net\.act' has none"):
        fit([TraceCallback(save="net.act", parameters=True)])


class ConfiguredNet(LitNet):
    """A LightningModule whose class records how it is built."""

    def __init__(self, width: int = 8) -> None:
        super().__init__(NoisyNet(width))


L.configurable(ConfiguredNet)


@pytest.mark.parametrize("make", [ConfigCallback, lambda: TraceCallback(schedule=4)])
def test_a_checkpoint_carries_its_config_and_builds_its_model_again(make: Any, tmp_path: Path) -> None:
    module = ConfiguredNet(width=8)
    trainer = quiet_trainer([make()])
    trainer.fit(module, random_loader(4))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    again = L.load_from_checkpoint(tmp_path / "last.ckpt")
    assert type(again) is ConfiguredNet
    for name, value in module.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])


def test_a_checkpoint_without_a_config_says_what_to_do(tmp_path: Path) -> None:
    trainer = quiet_trainer()
    trainer.fit(LitNet(), random_loader(1))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    with pytest.raises(L.NoConfigError, match="TraceCallback or ConfigCallback"):
        L.load_from_checkpoint(tmp_path / "last.ckpt")


CLI = """
from lightning.pytorch.cli import LightningCLI
from lightning.pytorch.demos.boring_classes import BoringModel

if __name__ == "__main__":
    cli = LightningCLI(BoringModel, run=False)
    print([callback.schedule for callback in cli.trainer.callbacks if hasattr(callback, "schedule")])
"""


@pytest.mark.slow
def test_lightning_cli_builds_it_from_yaml_with_and_without_arguments(tmp_path: Path) -> None:
    """Case C56."""
    (tmp_path / "app.py").write_text(CLI)
    (tmp_path / "config.yaml").write_text(
        "trainer:\n  logger: false\n  enable_checkpointing: false\n  accelerator: cpu\n  callbacks:\n"
        "  - class_path: tl_integrations.callbacks.TraceCallback\n"
        "    init_args: {schedule: 'every(10) | at(0, 1)', save: [layer]}\n"
        "  - class_path: tl_integrations.callbacks.TraceCallback\n"
    )
    run = subprocess.run(
        [sys.executable, "app.py", "--config", "config.yaml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-2000:]
    assert "every(10) | at(0, 1)" in run.stdout and "every(100)" in run.stdout
