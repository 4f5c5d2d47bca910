"""What boards and loggers hold after real training with the callback."""

import csv
import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import RichProgressBar
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch import Tensor, nn
from toy_models import random_loader

from tests.callbacks.fitting import fit
from tests.reporting.captures import board, captured, record, scalars, text
from tl_integrations import load
from tl_integrations.callbacks import TraceCallback
from tl_integrations.capture.statistics import Summariser, collect
from tl_integrations.options import ReportOptions
from tl_integrations.reporting.board import needs_of
from tl_integrations.reporting.loggers import LoggerSink


class Small(LightningModule):
    """A network that logs its loss at every step."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 6), nn.ReLU(), nn.Linear(6, 2))

    def hidden(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x = batch[0] if isinstance(batch, (tuple, list)) else batch
        loss = self.hidden(x).square().mean()
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), 0.05)


class Broken(Small):
    """Its activations become NaN, then have no rows."""

    def hidden(self, x: Tensor) -> Tensor:
        y = self.net[1](self.net[0](x) * float("nan"))
        empty = self.net[1](self.net[0](x[:0]))
        return self.net(x) + y.detach().nan_to_num().sum() + empty.sum()


def tensorboard(folder: Path) -> TensorBoardLogger:
    return TensorBoardLogger(folder, name="tb", version=0)


def train(callback: TraceCallback, logger: Any, model: LightningModule | None = None, **options: Any) -> None:
    fit([callback], model or Small(), logger=logger, log_every_n_steps=1, **options)


def test_scalars_and_histograms_stand_at_the_scheduled_steps_with_the_values_of_the_bundle(
    tmp_path: Path,
) -> None:
    callback = TraceCallback("every(3)", "net.*", histograms=16, storage=str(tmp_path / "run.tlspec"))
    train(callback, tensorboard(tmp_path))
    read, run = board(tmp_path / "tb/version_0"), load(tmp_path / "run.tlspec")
    for address in ("net.0", "net.1", "net.2"):
        expected = {step: run.at(step)[address].out.mean().item() for step in (0, 3, 6)}
        assert scalars(read, f"act_mean/{address}") == pytest.approx(expected, rel=1e-5)
        events = read.Histograms(f"act_hist/{address}")
        assert [event.step for event in events] == [0, 3, 6]
        assert all(sum(event.histogram_value.bucket) == event.histogram_value.num for event in events)
        assert events[0].histogram_value.num == run.at(0)[address].out.numel()


def test_captured_steps_share_the_axis_of_the_logged_loss(tmp_path: Path) -> None:
    train(TraceCallback("every(2)", "net.1"), tensorboard(tmp_path), accumulate_grad_batches=2)
    read = board(tmp_path / "tb/version_0")
    loss = scalars(read, "loss")
    assert set(scalars(read, "act_std/net.1")) == {0, 2} <= set(loss) == {0, 1, 2, 3}


def test_we_write_into_the_loggers_own_file(tmp_path: Path) -> None:
    train(TraceCallback(1, "net.0", histograms=True), tensorboard(tmp_path))
    assert len(list(tmp_path.rglob("events*"))) == 1
    read = board(tmp_path / "tb/version_0")
    assert len(scalars(read, "loss")) == len(scalars(read, "act_mean/net.0")) == 8


def test_training_ends_normally_when_activations_are_nan_and_then_empty(tmp_path: Path) -> None:
    callback = TraceCallback(1, "net.1", histograms=8)
    with pytest.warns(UserWarning, match="No histogram of 'net.1'") as caught:
        train(callback, tensorboard(tmp_path), Broken())
    assert len([each for each in caught if "No histogram" in str(each.message)]) == 1
    read = board(tmp_path / "tb/version_0")
    assert scalars(read, "act_nonfinite_fraction/net.1") == dict.fromkeys(range(8), 1.0)
    assert scalars(read, "capture/histograms_skipped") == dict.fromkeys(range(8), 2.0)
    assert math.isnan(scalars(read, "act_mean/net.1")[0]) and len(scalars(read, "loss")) == 8


def test_any_number_of_loggers_get_the_same_numbers(tmp_path: Path) -> None:
    loggers = [tensorboard(tmp_path), CSVLogger(tmp_path, name="csv", version=0)]
    train(TraceCallback("at(1, 5)", "net.1"), loggers)
    with open(tmp_path / "csv/version_0/metrics.csv") as file:
        rows = {int(row["step"]): row for row in csv.DictReader(file) if row["act_std/net.1"]}
    expected = scalars(board(tmp_path / "tb/version_0"), "act_std/net.1")
    assert {step: float(row["act_std/net.1"]) for step, row in rows.items()} == pytest.approx(expected)
    assert set(expected) == {1, 5}


@pytest.mark.parametrize("options", [{"logger": False}, {"logger": True, "fast_dev_run": True}])
def test_nowhere_to_log_is_no_error(options: dict[str, Any], tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    callback = TraceCallback(1, "net.0", histograms=True)
    fit([callback], Small(), **options)
    assert callback.captures and not (tmp_path / "None").exists()


def test_the_run_is_a_picture_a_plan_and_a_config_when_it_ends(tmp_path: Path) -> None:
    report = ReportOptions(heat_map=True, prefix="s_", images=("net.0",))
    callback = TraceCallback(
        "every(2)",
        "net.*",
        report=report,
        config={"_target_": "my_app.build"},
        storage=str(tmp_path / "r.tlspec"),
    )
    train(callback, tensorboard(tmp_path))
    read = board(tmp_path / "tb/version_0")
    assert {"s_heat_map/act_std", "s_act_image/net.0"} <= set(read.Tags()["images"])
    plan = text(read, "s_capture/plan")
    assert "`every(2)`" in plan and "0, 2, 4, 6" in plan and "r.tlspec" in plan
    assert "my_app.build" in text(read, "config") and "0, 2, 4, 6" in text(read, "s_capture/steps")


def shown(capfd: pytest.CaptureFixture[str]) -> set[str]:
    """What a terminal was sent, without control codes and numbers."""
    out, err = capfd.readouterr()
    lines = re.split(r"[\r\n]+", re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", out + err))
    return {re.sub(r"[^A-Za-z]+", " ", line).strip() for line in lines}


@pytest.mark.parametrize("bar", ["tqdm", "rich"])
def test_nothing_is_printed_through_progress_bars(
    bar: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def run(callbacks: list[Any], folder: Path) -> set[str]:
        bars = [RichProgressBar()] if bar == "rich" else []
        torch.manual_seed(0)
        trainer = Trainer(
            callbacks=[*bars, *callbacks], max_epochs=1, logger=tensorboard(folder), log_every_n_steps=1,
            enable_checkpointing=False, enable_model_summary=False, accelerator="cpu",
        )  # fmt: skip
        trainer.fit(Small(), random_loader(8))
        return shown(capfd)

    run([], tmp_path / "warm")
    config = {"_target_": "my_app.build"}
    plain = run([], tmp_path / "plain")
    watched = run([TraceCallback(2, "net.*", histograms=True, config=config)], tmp_path / "watched")
    assert watched - plain == set()


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
        torch.ones(2, 3).bfloat16(),
        torch.zeros(0, 4),
        torch.tensor(2.5),
    ],
    ids=lambda value: f"{value.dtype}-{tuple(value.shape)}",
)
def test_any_tensor_can_be_logged(value: Tensor, tmp_path: Path) -> None:
    wanted = needs_of(("mean", "absmax"), 64, ReportOptions()).summaries
    (numbers,) = collect([Summariser(wanted).measure(value)])
    statistics, histogram = numbers or (None, None)
    measured = replace(record("a", torch.ones(1)), statistics=statistics, histogram=histogram)
    logger = tensorboard(tmp_path)
    sink = LoggerSink(logger, ("mean", "absmax"), 64)
    if value.numel() == 0:
        with pytest.warns(UserWarning, match="no finite value"):
            sink.write(captured(1, [measured]))
    else:
        sink.write(captured(1, [measured]))
    sink.close()
    logger.finalize("success")
    read = board(tmp_path / "tb/version_0")
    if value.layout is torch.strided and value.numel():
        magnitude = value.abs() if value.is_complex() else value.float()
        assert scalars(read, "act_absmax/a")[1] == pytest.approx(magnitude.abs().max().item(), rel=1e-6)
        assert read.Histograms("act_hist/a")[0].histogram_value.num == value.numel()
