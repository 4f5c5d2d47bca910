"""The two loops that callbacks are measured on, each a LightningModule with its loader."""

from collections.abc import Callable
from typing import Any

import torch
from lightning.pytorch import LightningModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset


class Conv(LightningModule):
    """Two rounds of convolution, BatchNorm, ReLU and pooling on 1x28x28."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.BatchNorm2d(16),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.BatchNorm2d(32),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(32 * 49, 10),
        )

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.net(x)
        return out

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = nn.functional.cross_entropy(self(batch[0]), batch[1])
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Gpt(LightningModule):
    """Four transformer layers of width 128 over 64 tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(256, 128)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(128, 4, 512, dropout=0.0, batch_first=True) for _ in range(4)
        )
        self.head = nn.Linear(128, 256)

    def forward(self, x: Tensor) -> Tensor:
        x = self.embed(x)
        for block in self.blocks:
            x = block(x)
        out: Tensor = self.head(x)
        return out

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = nn.functional.cross_entropy(self(batch[0]).flatten(0, 1), batch[0].flatten())
        self.log("loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


def conv_loader(steps: int) -> DataLoader[Any]:
    rows = 64 * steps
    return DataLoader(
        TensorDataset(torch.randn(rows, 1, 28, 28), torch.randint(0, 10, (rows,))), batch_size=64
    )


def gpt_loader(steps: int) -> DataLoader[Any]:
    return DataLoader(TensorDataset(torch.randint(0, 256, (8 * steps, 64))), batch_size=8)


LOOPS: dict[str, tuple[Callable[[], LightningModule], Callable[[int], DataLoader[Any]]]] = {
    "conv": (Conv, conv_loader),
    "gpt": (Gpt, gpt_loader),
}
