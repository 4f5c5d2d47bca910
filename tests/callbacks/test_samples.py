"""`sample_ids=` ties captured records to the samples of their batch."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fitting import quiet_trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset
from toy_models import LitNet, Mlp

import tl_integrations as tl
from tl_integrations.callbacks import TraceCallback
from tl_integrations.capture.sinks import MemorySink
from tl_integrations.errors import CaptureError, OptionError


class Rows(Dataset[Any]):
    """Rows that say which they are."""

    def __len__(self) -> int:
        return 32

    def __getitem__(self, index: int) -> dict[str, Any]:
        return {"x": torch.full((8,), float(index)), "y": torch.zeros(2), "id": index}


class OfRows(LitNet):
    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return nn.functional.mse_loss(self(batch["x"]), batch["y"])

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        self(batch["x"])


def ids_in(batch: dict[str, Tensor]) -> Tensor:
    return batch["id"] + 100


def loader(shuffle: bool = True) -> DataLoader[Any]:
    return DataLoader(Rows(), batch_size=4, shuffle=shuffle, generator=torch.Generator().manual_seed(1))


def test_each_captured_step_says_which_samples_it_saw(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    module = OfRows(nn.Sequential(nn.Identity(), nn.Linear(8, 2)))
    callback = TraceCallback(schedule=3, save="net.0", storage=path, sample_ids="id")
    logger = TensorBoardLogger(str(tmp_path), name="tb")
    quiet_trainer([callback], logger=logger, log_every_n_steps=1).fit(module, loader())
    recording = tl.load(path)
    for step in (0, 3, 6):
        found = recording.at(step)
        ids = found["sample_ids"].out
        assert ids.dtype is torch.int64 and torch.equal(found["net.0"].out[:, 0], ids.float())


@pytest.mark.parametrize("where", [ids_in, "test_samples:ids_in"])
def test_ids_come_from_a_function_or_its_import_path(where: Any, tmp_path: Path) -> None:
    sink = MemorySink()
    callback = TraceCallback(schedule=100, save="net.act", sinks=[sink], sample_ids=where)
    quiet_trainer([callback]).fit(OfRows(), loader(shuffle=False))
    assert sink.recording["sample_ids"].out.tolist() == [100, 101, 102, 103]


def test_every_microbatch_and_every_evaluation_batch_has_its_own(tmp_path: Path) -> None:
    sink = MemorySink()
    callback = TraceCallback(
        schedule=1,
        save="net.act",
        sinks=[sink],
        sample_ids="id",
        microbatches="all",
        stages=["train", "validate"],
    )
    trainer = quiet_trainer([callback], accumulate_grad_batches=2, limit_train_batches=2)
    trainer.fit(OfRows(), loader(shuffle=False), loader(shuffle=False))
    found = [record for record in sink.recording if record.address == "sample_ids"]
    assert [(record.stage, record.microbatch) for record in found] == [
        ("train", 0),
        ("train", 1),
        ("validate", 0),
    ]
    assert {tuple(record.out.tolist()) for record in found} == {(0, 1, 2, 3), (4, 5, 6, 7)}


def test_the_flight_recorder_keeps_them() -> None:
    model, sink = Mlp(), MemorySink()
    schedule = "always() | on_loss_spike(window=2)"
    monitor = tl.StepMonitor(model, schedule=schedule, save="act", sinks=[sink], history=2)
    for step in range(5):
        with monitor.step(step, sample_ids=[step, step + 10]):
            model(torch.randn(2, 16))
        monitor.observe_loss(100.0 if step == 3 else 1.0)
    ids = [record.out.tolist() for record in sink.recording if record.address == "sample_ids"]
    assert ids == [[2, 12], [3, 13], [4, 14]]


@pytest.mark.parametrize(
    ("where", "words"), [("nope", "'id'"), (3, "dict"), (lambda batch: ["a"], "integer")]
)
def test_a_batch_without_ids_is_one_clear_error_and_training_goes_on_if_asked(where: Any, words: str) -> None:
    with pytest.raises(CaptureError, match=words):
        quiet_trainer([TraceCallback(save="net.act", sample_ids=where, on_error="raise")]).fit(
            OfRows(), loader()
        )
    callback = TraceCallback(schedule=1, save="net.act", sample_ids=where)
    with pytest.warns(UserWarning, match=words):
        quiet_trainer([callback]).fit(OfRows(), loader())
    assert callback.captures == []


def test_a_position_in_a_sequence_is_taken() -> None:
    sink = MemorySink()
    rows = [(torch.randn(8), torch.zeros(2), index) for index in range(8)]

    class Threes(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            return nn.functional.mse_loss(self(batch[0]), batch[1])

    callback = TraceCallback(schedule=100, save="net.act", sinks=[sink], sample_ids=2)
    quiet_trainer([callback]).fit(Threes(), DataLoader(rows, batch_size=4))
    assert sink.recording["sample_ids"].out.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize(
    "where", ["no_such_module:ids_in", "test_samples:no_such", "test_samples:loader_", ":x"]
)
def test_an_import_path_that_leads_nowhere_is_an_error_before_the_first_step(where: str) -> None:
    module = OfRows()
    with pytest.raises(OptionError, match=r"sample_ids=.*'package.module:function'"):
        quiet_trainer([TraceCallback(save="net.act", sample_ids=where)]).fit(module, loader())
    assert module.trainer.global_step == 0
