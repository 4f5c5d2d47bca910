"""Which layer went NaN first, at which step, and for which sample?

One training image is blank, and a layer of the network divides by the standard deviation of its input. A
first run with `replay=True` names the operation and the step; a second one, the same from the start, captures
that step with its sample ids.

    python examples/find_nan_layer.py

Prints what broke, the row of the batch that broke it, and the sample that stood in that row.
"""

import logging
import warnings

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import tl_integrations as tl
from tl_integrations.capture.sinks import MemorySink

BLANK = 777

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
# Lightning's advice on loaders, and the warning of the run that is meant to break.
warnings.filterwarnings("ignore", message=".*does not have many workers.*|.*LeafSpec.*|Not finite: .*")


class Standardize(nn.Module):
    """The planted mistake: where all values of a row are equal, this is 0 / 0."""

    def forward(self, x: Tensor) -> Tensor:
        return (x - x.mean(dim=1, keepdim=True)) / x.std(dim=1, keepdim=True)


class DigitClassifier(pl.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Flatten(), nn.Linear(64, 32, bias=False), nn.ReLU(), Standardize(), nn.Linear(32, 10)
        )

    def training_step(self, batch: tuple[Tensor, Tensor, Tensor], batch_idx: int) -> Tensor:
        images, digits, _ = batch
        return F.cross_entropy(self.net(images), digits)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.1)


def digits_with_a_blank() -> DataLoader[tuple[Tensor, ...]]:
    """Images, digits and the number of each sample, shuffled."""
    digits = load_digits()
    images = torch.tensor(digits.images, dtype=torch.float32) / 16
    images[BLANK] = 0
    rows = TensorDataset(images, torch.tensor(digits.target), torch.arange(len(images)))
    return DataLoader(rows, batch_size=64, shuffle=True)


def train(callback: tl.TraceCallback) -> None:
    """The same run each time: same weights, same order of samples."""
    pl.seed_everything(0, verbose=False)
    trainer = pl.Trainer(
        max_epochs=1,
        accelerator="cpu",
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(DigitClassifier(), digits_with_a_blank())


def main() -> tuple[int, str, int]:
    """Returns the step, the layer and the sample."""
    search = tl.TraceCallback(schedule="never()", replay=True)
    train(search)
    first = search.first_nonfinite
    assert first is not None and first.address is not None
    print(f"first NaN     {first}")

    memory = MemorySink()
    train(tl.TraceCallback(schedule=[first.step], sinks=[memory], sample_ids=2, statistics=False))
    step = memory.recording.at(first.step)
    broken = step[first.address].out.isnan().any(dim=1)
    row = int(broken.nonzero()[0])
    sample = int(step["sample_ids"].out[row])
    print(f"broken rows   {int(broken.sum())} of {len(broken)}: row {row}, sample {sample} of the data set")
    for record in step.select("net.*"):
        values = record.out[row].flatten()[:4].tolist()
        print(f"  {record.address:<6} {record.func_name:<12} row {row}: {values}")
    return first.step, first.address, sample


if __name__ == "__main__":
    main()
