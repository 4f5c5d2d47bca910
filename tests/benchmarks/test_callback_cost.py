"""What TraceCallback costs a real Trainer, off schedule and on."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from interleaving import is_measuring
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

from tl_integrations.callbacks import TraceCallback


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

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        loss = nn.functional.cross_entropy(self.net(batch[0]), batch[1])
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

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        x = self.embed(batch[0])
        for block in self.blocks:
            x = block(x)
        loss = nn.functional.cross_entropy(self.head(x).flatten(0, 1), batch[0].flatten())
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


class ModuleDataMonitor(Callback):
    """The usual monitor: hooks that stay, and a histogram of every input and output every n steps."""

    def __init__(self, every: int) -> None:
        self._every = every
        self._writer: Any = None
        self._step = 0

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self._writer = trainer.loggers[0].experiment
        for name, module in pl_module.named_modules():
            if name:
                module.register_forward_hook(self._hook(name))

    def on_train_batch_start(self, trainer: Trainer, *rest: Any) -> None:
        self._step = trainer.global_step

    def _hook(self, name: str) -> Callable[..., None]:
        def log(module: nn.Module, inputs: tuple[Any, ...], output: Any) -> None:
            if self._step % self._every == 0:
                outputs = output if isinstance(output, tuple) else (output,)
                for side, values in (("in", inputs[0] if inputs else None), ("out", outputs[0])):
                    if not isinstance(values, Tensor):
                        continue
                    self._writer.add_histogram(f"{side}/{name}", values.detach().cpu(), self._step)

        return log


class StepTimes(Callback):
    """CPU seconds of each batch, from the end of one to the end of the next."""

    def __init__(self) -> None:
        self.marks: list[float] = []

    def on_train_batch_end(self, *arguments: Any) -> None:
        self.marks.append(time.process_time())

    def mean_step(self, skip: int) -> float:
        return (self.marks[-1] - self.marks[skip]) / (len(self.marks) - 1 - skip)


def seconds_per_step(loop: str, callbacks: Sequence[Callback], folder: Path, steps: int) -> float:
    make, loader = LOOPS[loop]
    torch.manual_seed(0)
    times = StepTimes()
    trainer = Trainer(
        callbacks=[*callbacks, times],
        max_epochs=1,
        accelerator="cpu",
        logger=TensorBoardLogger(str(folder), name="tb"),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    trainer.fit(make(), loader(steps))
    return times.mean_step(skip=min(9, steps // 3))


def own_seconds_off_schedule() -> float:
    """Time of our hooks on one batch off schedule, alone."""
    callback = TraceCallback(schedule="at(1000000)", save="net.*", statistics=False)
    trainer = Trainer(logger=False, enable_checkpointing=False, enable_progress_bar=False, accelerator="cpu")
    module = Conv()
    callback.on_fit_start(trainer, module)
    calls = 10_000
    began = time.perf_counter()
    for _ in range(calls):
        callback.on_train_batch_start(trainer, module, None, 0)
        callback.on_train_batch_end(trainer, module, None, None, 0)
    return (time.perf_counter() - began) / calls


def test_our_own_time_off_schedule_is_at_most_half_a_percent_of_a_step(tmp_path: Path) -> None:
    assert own_seconds_off_schedule() <= 0.005 * seconds_per_step("conv", [], tmp_path, steps=12)


CASES: dict[str, Callable[[], list[Callback]]] = {
    "no callback": lambda: [],
    "never fires": lambda: [TraceCallback(schedule="at(1000000)")],
    "every 10, statistics": lambda: [TraceCallback(schedule=10)],
    "every 10, statistics and 64-bin histograms": lambda: [TraceCallback(schedule=10, histograms=64)],
    "every 10, hooks with add_histogram": lambda: [ModuleDataMonitor(10)],
}
TARGETS = {"every 10, statistics": 1.10, "every 10, statistics and 64-bin histograms": 1.20}


@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_trainer_with_the_callback_stays_within_its_ratio(
    loop: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    rounds, steps = (15, 40) if is_measuring(request) else (1, 12)
    seconds: dict[str, list[float]] = {name: [] for name in CASES}
    for round_number in range(rounds):
        order = list(CASES) if round_number % 2 == 0 else list(reversed(CASES))
        for name in order:
            seconds[name].append(seconds_per_step(loop, CASES[name](), tmp_path / name, steps))
    ratios = {
        name: median(own / plain for own, plain in zip(values, seconds["no callback"], strict=True))
        for name, values in seconds.items()
    }
    if is_measuring(request):
        for name, ratio in ratios.items():
            print(f"| {loop} | {name} | {median(seconds[name]) * 1e3:.2f} ms | {ratio:.3f}x |")
        for name, target in TARGETS.items():
            assert ratios[name] <= target * 1.1, f"{loop}, {name}: {ratios[name]:.3f}x, target {target}x"
