"""Small models that several tests share."""

from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset


class Mlp(nn.Module):
    """`depth` layers of one width with a ReLU after each."""

    def __init__(self, width: int = 16, depth: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(depth))
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = self.act(layer(x))
        return x


class NoisyNet(nn.Module):
    """Dropout and BatchNorm: what an extra forward or a touched RNG would change."""

    def __init__(self, width: int = 8) -> None:
        super().__init__()
        self.enter = nn.Linear(width, width)
        self.norm = nn.BatchNorm1d(width)
        self.act = nn.ReLU()
        self.drop = nn.Dropout(0.3)
        self.leave = nn.Linear(width, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(self.drop(self.act(self.norm(self.enter(x)))))


class LitNet(LightningModule):
    """Trains `net` on random numbers, logging its loss."""

    def __init__(self, net: nn.Module | None = None) -> None:
        super().__init__()
        self.net = net if net is not None else NoisyNet()
        self.seen_steps: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x)

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x, y = batch
        loss = nn.functional.mse_loss(self(x), y)
        self.log("loss", loss)
        return loss

    def validation_step(self, batch: Any, batch_idx: int, dataloader_idx: int = 0) -> None:
        x, y = batch
        self.log("val_loss", nn.functional.mse_loss(self(x), y))

    def test_step(self, batch: Any, batch_idx: int) -> None:
        self.validation_step(batch, batch_idx)

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        return self(batch[0])

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def random_rows(count: int = 64, width: int = 8, seed: int = 0) -> Dataset[Any]:
    """`count` pairs of rows, the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    return TensorDataset(
        torch.randn(count, width, generator=generator), torch.randn(count, 2, generator=generator)
    )


def random_loader(batches: int = 8, batch_size: int = 4, width: int = 8) -> DataLoader[Any]:
    """Batches in a fixed order."""
    return DataLoader(random_rows(batches * batch_size, width), batch_size=batch_size)
