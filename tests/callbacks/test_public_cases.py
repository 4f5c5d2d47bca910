"""Failures of other tools, reported in public, which must not be ours. Each carries its case number."""

import copy
import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from fitting import fit, leftovers, quiet_trainer
from lightning.pytorch import Callback
from lightning.pytorch.loggers import TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn
from torch.utils.data import DataLoader
from torch.utils.tensorboard import SummaryWriter
from toy_models import LitNet, NoisyNet, random_loader, random_rows

import tl_integrations as tl
from tl_integrations import language as L
from tl_integrations.callbacks import TraceCallback
from tl_integrations.capture.sinks import MemorySink
from tl_integrations.options import ReportOptions
from tl_integrations.reporting import TensorBoardSink


def steps_of(callback: TraceCallback) -> list[int | None]:
    return [capture.step for capture in callback.captures]


def board(folder: Path) -> EventAccumulator:
    (file,) = folder.rglob("events*")
    read = EventAccumulator(str(file), size_guidance={"scalars": 0, "histograms": 0})
    read.Reload()
    return read


def test_a_schedule_under_accumulation_counts_optimizer_steps_and_repeats_none() -> None:
    """Case C02."""
    sink = MemorySink()
    fit(
        [TraceCallback(schedule=2, save=tl.func("linear"), sinks=[sink])],
        batches=16,
        accumulate_grad_batches=4,
    )
    keys = [(record.step, record.microbatch, record.address) for record in sink.recording]
    assert len(keys) == len(set(keys)) and {key[0] for key in keys} == {0, 2}


def test_a_layer_that_gives_nan_or_nothing_does_not_end_training(tmp_path: Path) -> None:
    """Case C04."""

    class Bad(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.rows = nn.Linear(8, 2), nn.Identity()

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            self.rows(y[:0])
            return torch.relu(y * float("nan")) + y

    logger = TensorBoardLogger(str(tmp_path), name="tb", version=0)
    callback = TraceCallback(schedule=1, save="func('relu') | module('net.rows')", histograms=True)
    with pytest.warns(UserWarning, match="No histogram") as caught:
        fit([callback], LitNet(Bad()), batches=4, logger=logger, log_every_n_steps=1)
    assert steps_of(callback) == [0, 1, 2, 3]
    assert sum("No histogram" in str(warning.message) for warning in caught) == 1
    read = board(tmp_path)
    assert [event.value for event in read.Scalars("act_nonfinite_fraction/net")] == [1.0] * 4
    assert [event.value for event in read.Scalars("capture/histograms_skipped")] == [2.0] * 4


def test_ctrl_c_on_a_captured_step_leaves_nothing_and_keeps_the_steps_before(tmp_path: Path) -> None:
    """Case C11."""

    class Interrupted(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            if batch_idx == 2:
                raise KeyboardInterrupt
            return super().training_step(batch, batch_idx)

    module = Interrupted()
    with pytest.raises((SystemExit, KeyboardInterrupt)):
        fit([TraceCallback(schedule=1, save=tl.func("linear"), storage=str(tmp_path / "a.tlspec"))], module)
    assert leftovers(module) == [] and torch._C._len_torch_function_stack() == 0
    assert tl.recover(tmp_path / "a.tlspec").steps == [0, 1]


@pytest.mark.parametrize("options", [{"logger": False}, {"fast_dev_run": True}])
def test_nowhere_to_log_is_no_failure(
    options: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Case C16."""
    monkeypatch.chdir(tmp_path)
    callback = TraceCallback(schedule=1, save=tl.func("linear"), histograms=True, storage=True)
    fit([callback], **options)
    assert len(steps_of(callback)) >= 1 and not (tmp_path / "None").exists()


def test_two_callbacks_in_one_run_are_both_complete_and_keep_their_tags_apart(tmp_path: Path) -> None:
    """Case C20."""
    logger = TensorBoardLogger(str(tmp_path), name="tb", version=0)
    first = TraceCallback(schedule=1, save=tl.func("linear"), report=ReportOptions(prefix="a/"))
    second = TraceCallback(schedule=2, save=tl.func("linear"), report=ReportOptions(prefix="b/"))
    fit([first, second], batches=4, logger=logger, log_every_n_steps=1)
    assert steps_of(first) == [0, 1, 2, 3] and steps_of(second) == [0, 2]
    read = board(tmp_path)
    (layer,) = {
        tag.partition("act_mean/")[2] for tag in read.Tags()["scalars"] if "act_mean/net.enter" in tag
    }
    assert [event.step for event in read.Scalars(f"a/act_mean/{layer}")] == [0, 1, 2, 3]
    assert [event.step for event in read.Scalars(f"b/act_mean/{layer}")] == [0, 2]


def test_models_and_callbacks_are_copied_and_pickled_before_during_and_after() -> None:
    """Case C23."""
    copies: list[nn.Module] = []
    sink = MemorySink()

    class Copies(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            twin = copy.deepcopy(self.net)
            copies.append(twin)
            torch.save(self.net, io.BytesIO())
            twin(batch[0])
            return super().training_step(batch, batch_idx)

    callback = TraceCallback(schedule=1, save=tl.func("linear"), sinks=[sink])
    pickle.dumps(TraceCallback(schedule=1, save="net.*"))
    fit([callback], Copies(), batches=3)
    assert all(leftovers(twin) == [] for twin in copies)
    # What a copy computes is an op of the step, but of no module of the model.
    assert [record.address for record in sink.recording if record.address] == ["net.enter", "net.leave"] * 3
    assert steps_of(pickle.loads(pickle.dumps(callback))) == [0, 1, 2]


@pytest.mark.parametrize(
    "value",
    [
        torch.tensor([1e30, -1e30]),
        torch.full((4,), 65504.0, dtype=torch.float16),
        torch.arange(4),
        torch.ones(3, dtype=torch.bool),
        torch.tensor([3 + 4j, 0j]),
        torch.ones(3).to(torch.float8_e4m3fn),
        torch.eye(3).to_sparse(),
    ],
    ids=lambda value: f"{value.dtype}".removeprefix("torch.") + ("-sparse" if value.is_sparse else ""),
)
def test_any_activation_can_be_logged(value: Tensor, tmp_path: Path) -> None:
    """Case C25."""
    model = nn.Sequential(nn.Identity())
    with SummaryWriter(str(tmp_path)) as writer, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "No histogram")
        monitor = tl.StepMonitor(model, schedule=1, save="0", sinks=[TensorBoardSink(writer)])
        with monitor.step(1):
            model(value)
        monitor.close()
    read = board(tmp_path)
    if not value.is_sparse:
        (event,) = read.Histograms("act_hist/0")
        assert sum(event.histogram_value.bucket) == event.histogram_value.num == value.numel()
        assert event.histogram_value.max == pytest.approx(
            5.0 if value.is_complex() else float(value.double().max())
        )


def test_bundle_board_and_callback_agree_on_the_steps(tmp_path: Path) -> None:
    """Case C32."""
    logger = TensorBoardLogger(str(tmp_path), name="tb", version=0)
    path = tmp_path / "a.tlspec"
    callback = TraceCallback(schedule=3, save="net.enter", storage=str(path), histograms=True)
    fit([callback], batches=10, logger=logger, log_every_n_steps=100)
    assert steps_of(callback) == tl.load(path).steps == [0, 3, 6, 9]
    assert [event.step for event in board(tmp_path / "tb").Histograms("act_hist/net.enter")] == [0, 3, 6, 9]


def test_an_interval_longer_than_an_epoch_counts_on_over_epochs() -> None:
    """Case C34."""
    callback = TraceCallback(schedule=7, save=tl.func("linear"))
    fit([callback], batches=5, max_epochs=3)
    assert steps_of(callback) == [0, 7, 14]


@L.configurable
class WithHyperparameters(LitNet):
    """Keeps its arguments as hyperparameters."""

    def __init__(self, width: int = 8, betas: tuple[float, float] = (0.9, 0.99)) -> None:
        super().__init__(NoisyNet(width))
        self.save_hyperparameters()


def test_hyperparameters_of_a_model_built_from_a_config_reload_safely(tmp_path: Path) -> None:
    """Case C43."""
    tree = L.trace(lambda: WithHyperparameters(width=8, betas=(0.5, 0.9)), as_dict=True)
    module = L.instantiate(tree)
    trainer = quiet_trainer([TraceCallback(schedule=4, save="net.act")])
    trainer.fit(module, random_loader(2))
    trainer.save_checkpoint(tmp_path / "last.ckpt")
    held = torch.load(tmp_path / "last.ckpt", weights_only=True)
    assert list(held["hyper_parameters"]["betas"]) == [0.5, 0.9]
    again = L.load_from_checkpoint(tmp_path / "last.ckpt")
    assert type(again) is WithHyperparameters and again.hparams.width == 8


def test_a_reactive_schedule_sees_the_loss_that_the_step_returned() -> None:
    """Case C58."""
    returned: list[float] = []

    class Keeps(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = super().training_step(batch, batch_idx)
            returned.append(float(loss.detach()))
            return loss

    callback = TraceCallback(schedule="on_loss_spike(factor=1000.0)", save="net.act")
    fit([callback], Keeps(), batches=8, accumulate_grad_batches=4)
    assert callback.schedule._alarm.losses == pytest.approx(returned)


def test_the_loggers_own_writer_is_used_and_all_points_are_there(tmp_path: Path) -> None:
    """Case C67."""
    logger = TensorBoardLogger(str(tmp_path), name="tb", version=0)
    fit([TraceCallback(schedule=1, save="net.enter")], batches=4, logger=logger, log_every_n_steps=1)
    read = board(tmp_path)
    assert len(read.Scalars("loss")) == len(read.Scalars("act_mean/net.enter")) == 4


def test_a_running_callback_shows_what_is_committed(tmp_path: Path) -> None:
    """Case C68."""
    seen: list[list[int]] = []
    callback = TraceCallback(schedule=2, save="net.act", storage=str(tmp_path / "a.tlspec"))

    class Reads(Callback):
        def on_train_batch_end(self, *arguments: Any) -> None:
            seen.append(callback.recording.steps)

    fit([callback, Reads()], batches=5)
    assert seen == [[0], [0], [0, 2], [0, 2], [0, 2, 4]]


@pytest.mark.slow
@pytest.mark.parametrize("context", ["fork", "spawn"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:Consider setting `persistent_workers=True`")
def test_loaders_with_worker_processes_do_not_carry_a_capture_along(context: str) -> None:
    callback = TraceCallback(schedule=2, save="net.act")
    loader: DataLoader[Any] = DataLoader(
        random_rows(16), batch_size=4, num_workers=1, multiprocessing_context=context
    )
    module = LitNet()
    quiet_trainer([callback]).fit(module, loader)
    assert steps_of(callback) == [0, 2] and leftovers(module) == []
