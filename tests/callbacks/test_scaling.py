"""Gradients under a loss scale: the scale is noted, and divided out on request."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fitting import fit, quiet_trainer
from lightning.pytorch.plugins.precision import MixedPrecision
from torch import Tensor, nn
from toy_models import LitNet, random_loader

import tl_integrations as tl
from tl_integrations.callbacks import TraceCallback


class Linear(LitNet):
    """One layer whose gradient at its output is known in closed form."""

    def __init__(self) -> None:
        super().__init__(nn.Linear(8, 2))
        self.expected: list[Tensor] = []

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        out = self(batch[0]).float()
        self.expected.append((2 * (out - batch[1]) / out.numel()).detach())
        return nn.functional.mse_loss(out, batch[1])


def test_the_loss_scale_of_a_grad_scaler_is_kept_with_each_gradient(tmp_path: Path) -> None:
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0, growth_interval=2)
    plugin = MixedPrecision("16-mixed", "cpu", scaler=scaler)
    path = str(tmp_path / "run.tlspec")
    module = Linear()
    callback = TraceCallback(schedule=2, save="net", storage=path, gradients=True, on_error="raise")
    quiet_trainer([callback], plugins=[plugin]).fit(module, random_loader(6))
    records = list(tl.load(path))
    # The scaler doubles its scale after every second step.
    assert [record.gradient.loss_scale for record in records if record.gradient] == [1024.0, 2048.0, 4096.0]
    for record in records:
        expected = module.expected[record.step or 0]
        assert record.grad_unscaled is not None and record.grad is not None
        assert record.grad_unscaled.float() == pytest.approx(expected, rel=5e-3, abs=1e-4)
        scaled = record.grad.float() / record.gradient.loss_scale  # type: ignore[union-attr]
        assert torch.allclose(scaled, record.grad_unscaled.float(), rtol=1e-3, atol=1e-6)


def test_without_a_scaler_the_scale_is_1_and_accumulation_is_noted(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    module = Linear()
    callback = TraceCallback(schedule=100, save="net", storage=path, gradients=True)
    fit([callback], module, batches=2, accumulate_grad_batches=2)
    (record,) = tl.load(path)
    assert record.gradient is not None
    assert (record.gradient.loss_scale, record.gradient.accumulate) == (1.0, 2)
    assert torch.allclose(record.grad * 2, module.expected[0])
