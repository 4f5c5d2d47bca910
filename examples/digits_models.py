"""Two networks for handwritten digits, their training and their images: ordinary code without any framework
of configs. digits_configs.py makes choices of it, train_digits.py puts it together.
"""

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset, random_split

CLASSES = 10
SIDE = 8


def mlp(depth: int = 2, width: int = 64, dropout: float = 0.1) -> nn.Sequential:
    """`depth` hidden layers over the flattened image: (batch, 1, 8, 8) -> (batch, 10)."""
    layers: list[nn.Module] = [nn.Flatten()]
    size = SIDE * SIDE
    for _ in range(depth):
        layers += [nn.Linear(size, width), nn.ReLU(), nn.Dropout(dropout)]
        size = width
    return nn.Sequential(*layers, nn.Linear(size, CLASSES))


def conv(depth: int = 2, channels: int = 16) -> nn.Sequential:
    """`depth` convolutions with batch norm, then the mean over the image: (batch, 1, 8, 8) -> (batch, 10)."""
    layers: list[nn.Module] = []
    size = 1
    for level in range(depth):
        width = channels * 2**level
        layers += [nn.Conv2d(size, width, kernel_size=3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
        size = width
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(size, CLASSES))


class DigitClassifier(pl.LightningModule):
    """Trains a network to name the digit."""

    def __init__(self, net: nn.Module, lr: float = 0.005) -> None:
        super().__init__()
        self.net = net
        self.lr = lr

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        images, digits = batch
        loss = F.cross_entropy(self.net(images), digits)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        images, digits = batch
        accuracy = (self.net(images).argmax(dim=1) == digits).float().mean()
        self.log("val_accuracy", accuracy, batch_size=len(digits))

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=self.lr)


class Digits(pl.LightningDataModule):
    """The 1,797 handwritten digits that come with scikit-learn, 8 x 8 pixels in [0, 1], a fifth of them
    held out.
    """

    def __init__(self, batch_size: int = 64, seed: int = 0) -> None:
        super().__init__()
        self.batch_size = batch_size
        self.seed = seed

    def setup(self, stage: str) -> None:
        digits = load_digits()
        images = torch.tensor(digits.images, dtype=torch.float32).unsqueeze(1) / 16
        whole = TensorDataset(images, torch.tensor(digits.target))
        generator = torch.Generator().manual_seed(self.seed)
        self.train, self.held_out = random_split(whole, [0.8, 0.2], generator=generator)

    def train_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(self.train, batch_size=self.batch_size, shuffle=True)

    def val_dataloader(self) -> DataLoader[tuple[Tensor, ...]]:
        return DataLoader(self.held_out, batch_size=len(self.held_out))
