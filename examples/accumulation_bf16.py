"""What runs inside one optimizer step when gradients accumulate and layers compute in bfloat16?

Four batches make one step, in mixed precision: the Trainer casts inside the forward and divides the loss by
four. `microbatches="all"` captures each of the four forwards and, with `gradients=True`, its own backward.

    python examples/accumulation_bf16.py

Prints for one step the dtype that each layer really computed in and the norm of its gradient in each
microbatch.
"""

import logging
import warnings

import lightning.pytorch as pl
import torch
from sklearn.datasets import load_wine
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import tl_integrations as tl
from tl_integrations.capture.sinks import MemorySink

ACCUMULATE = 4

logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
warnings.filterwarnings("ignore", message=".*does not have many workers.*|.*LeafSpec.*")


class WineClassifier(pl.LightningModule):
    """Names the grower of a wine from its chemistry."""

    def __init__(self) -> None:
        super().__init__()
        self.net = nn.Sequential(
            nn.Linear(13, 64), nn.LayerNorm(64), nn.GELU(), nn.Linear(64, 3), nn.LogSoftmax(dim=1)
        )

    def training_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> Tensor:
        chemistry, grower = batch
        return F.nll_loss(self.net(chemistry), grower)

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=0.01)


def wines() -> DataLoader[tuple[Tensor, ...]]:
    """The 178 wines of scikit-learn, each column with mean 0 and standard deviation 1."""
    chemistry, growers = load_wine(return_X_y=True)
    rows = torch.tensor(chemistry, dtype=torch.float32)
    rows = (rows - rows.mean(dim=0)) / rows.std(dim=0)
    return DataLoader(TensorDataset(rows, torch.tensor(growers)), batch_size=11, shuffle=True, drop_last=True)


def print_row(name: str, records: tl.Recording) -> None:
    dtype = str(records[0].dtype).removeprefix("torch.")
    print(f"{name:<20}{dtype:<12}" + "".join(f"{record.grad.float().norm():9.4f}" for record in records))


def main(steps: int = 20) -> tl.Recording:
    """Returns what was captured, in memory."""
    pl.seed_everything(0, verbose=False)
    memory = MemorySink()
    callback = tl.TraceCallback(
        schedule=[0, steps - 1],
        save=tl.select("net.*") | tl.func("nll_loss"),
        microbatches="all",
        gradients=True,
        statistics=False,
        sinks=[memory],
    )
    trainer = pl.Trainer(
        max_steps=steps,
        max_epochs=-1,
        accelerator="cpu",
        precision="bf16-mixed",
        accumulate_grad_batches=ACCUMULATE,
        callbacks=[callback],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(WineClassifier(), wines())

    last = memory.recording.at(steps - 1)
    print(f"step {steps - 1}, norm of the gradient in each of {ACCUMULATE} microbatches")
    print(f"{'layer':<20}{'computed in':<12}" + "".join(f"{number:>9}" for number in range(ACCUMULATE)))
    for record in last.select("net.*"):
        if record.microbatch == 0:
            same = last.select(record.address)
            print_row(f"{record.address} {record.func_name}", same)
    print_row("nll_loss", last.select(tl.func("nll_loss")))
    print(f"The loss was divided by {last[0].gradient.accumulate} before each backward, as Lightning does.")
    return memory.recording


if __name__ == "__main__":
    main()
