"""The same monitor in Fabric, Accelerate and the HuggingFace Trainer, each with the real library."""

import os
from pathlib import Path
from typing import Any

import pytest
import torch
from fitting import leftovers
from lightning.fabric import Fabric
from torch import Tensor, nn
from toy_models import Mlp, random_loader

import tl_integrations as tl
from tl_integrations.capture.sinks import MemorySink


def test_a_fabric_loop_is_captured_through_the_original_module() -> None:
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    sink = MemorySink()
    monitor = tl.StepMonitor(model, schedule=3, save="1", sinks=[sink])
    fabric = Fabric(accelerator="cpu", devices=1)
    wrapped, optimizer = fabric.setup(model, torch.optim.SGD(model.parameters(), lr=0.1))
    loader = fabric.setup_dataloaders(random_loader(7))
    for step, (x, y) in enumerate(loader):
        with monitor.step(step):
            loss = nn.functional.mse_loss(wrapped(x), y)
            fabric.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
    assert [record.step for record in sink.recording] == [0, 3, 6]
    assert [record.address for record in sink.recording] == ["1"] * 3
    assert leftovers(model) == []


def test_an_accelerate_loop_with_accumulation_counts_optimizer_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    accelerate = pytest.importorskip("accelerate")
    monkeypatch.setenv("ACCELERATE_USE_CPU", "true")
    model = nn.Sequential(nn.Linear(8, 4), nn.ReLU(), nn.Linear(4, 2))
    sink = MemorySink()
    monitor = tl.StepMonitor(model, schedule=2, save="0", sinks=[sink])
    accelerator = accelerate.Accelerator(cpu=True, gradient_accumulation_steps=2)
    wrapped, optimizer, loader = accelerator.prepare(
        model, torch.optim.SGD(model.parameters(), lr=0.1), random_loader(8)
    )
    step = 0
    for x, y in loader:
        with accelerator.accumulate(wrapped):
            with monitor.step(step):
                accelerator.backward(nn.functional.mse_loss(wrapped(x), y))
            optimizer.step()
            optimizer.zero_grad()
        step += accelerator.sync_gradients
    assert [record.step for record in sink.recording] == [0, 2]


class Classifier(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.body, self.head = Mlp(8, 2), nn.Linear(8, 2)

    def forward(self, x: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        logits = self.head(self.body(x))
        loss = nn.functional.mse_loss(logits, labels) if labels is not None else logits.sum()
        return {"loss": loss, "logits": logits}


@pytest.mark.parametrize("accumulate", [1, 2])
def test_the_huggingface_trainer_is_captured_once_per_scheduled_step(accumulate: int, tmp_path: Path) -> None:
    os.environ.setdefault("WANDB_DISABLED", "true")
    transformers = pytest.importorskip("transformers")
    from tl_integrations.callbacks.huggingface import MonitorCallback

    rows = [{"x": torch.randn(8), "labels": torch.randn(2)} for _ in range(24)]
    model = Classifier()
    sink = MemorySink()
    monitor = tl.StepMonitor(model, schedule=2, save="head", sinks=[sink])
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path),
        max_steps=5,
        per_device_train_batch_size=2,
        gradient_accumulation_steps=accumulate,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
        disable_tqdm=True,
    )
    transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, callbacks=[MonitorCallback(monitor)]
    ).train()
    assert [record.step for record in sink.recording] == [0, 2, 4]
    assert all(record.out.shape == (2, 2) for record in sink.recording)
    assert leftovers(model) == []


def test_a_huggingface_forward_that_raises_leaves_nothing(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    from tl_integrations.callbacks.huggingface import MonitorCallback

    class Fails(Classifier):
        def forward(self, x: Tensor, labels: Any = None) -> dict[str, Tensor]:
            raise RuntimeError("boom")

    model = Fails()
    monitor = tl.StepMonitor(model, schedule=1, save="head", sinks=[MemorySink()])
    arguments = transformers.TrainingArguments(
        output_dir=str(tmp_path), max_steps=2, report_to=[], use_cpu=True, disable_tqdm=True
    )
    rows = [{"x": torch.randn(8), "labels": torch.randn(2)} for _ in range(8)]
    trainer = transformers.Trainer(
        model=model, args=arguments, train_dataset=rows, callbacks=[MonitorCallback(monitor)]
    )
    with pytest.raises(RuntimeError, match="boom"):
        trainer.train()
    assert leftovers(model) == []
