"""What TraceCallback costs a real Trainer, off schedule and on, beside two peers in the same run."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import pytest
import torch
from interleaving import is_measuring, timing
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.loggers import TensorBoardLogger
from results import Report, Target
from torch import Tensor, nn
from training_loops import LOOPS, Conv

from tl_integrations.callbacks import TraceCallback
from tl_integrations.capture.guard import NonfiniteGuard
from tl_integrations.capture.nonfinite import is_finite

SECTION = "training-loop"
CAPTURING_TABLE = "CPU time of a training step, ratios to no callback"
ATTENDING_TABLE = "CPU time of a step whose callback never fires but looks at each, ratios to no callback"
ROUNDS = 15
ALONE = "Our own work in a step, timed alone, ratios to the step"

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


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


def layer_profiler(folder: Path) -> Callback:
    """torchlens's own callback, which traces the model anew on each chosen batch and writes labels."""
    lightning = pytest.importorskip("torchlens.callbacks.lightning")
    found: Callback = lightning.LayerProfilerCallback(folder / "profile.jsonl", every_n_batches=10)
    return found


@contextmanager
def torch_wrapped() -> Iterator[None]:
    """Torch as torchlens leaves it after its first use.

    Wrapped in the middle of a fit it would end the fit: `self.log` compares the `reduce_fx` it is given.
    """
    wrappers = pytest.importorskip("torchlens.backends.torch.wrappers")
    wrappers.wrap_torch()
    try:
        yield
    finally:
        wrappers.unwrap_torch()


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
        callback.on_before_optimizer_step(trainer, module, None)  # type: ignore[arg-type]
        callback.on_train_batch_end(trainer, module, None, None, 0)
    return (time.perf_counter() - began) / calls


@pytest.mark.parametrize("loop", list(LOOPS))
def test_our_own_time_off_schedule_is_at_most_half_a_percent_of_a_step(
    loop: str, tmp_path: Path, request: pytest.FixtureRequest, report: Report
) -> None:
    own = min(own_seconds_off_schedule() for _ in range(3))
    step = seconds_per_step(loop, [], tmp_path, steps=40 if is_measuring(request) else 12)
    if is_measuring(request):
        report.figure(ALONE, loop, "off schedule", own, ratio=own / step, target=Target(limit=0.005))
    assert own <= 0.005 * step, f"measured {own / step:.3%} of a step, target 0.5 %"


ATTENDING_ALONE = {"watch_nonfinite": 0.05, "replay": 0.01}
"""What each may take of a step."""


def median_seconds(call: Callable[[], object], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return median(times)


@pytest.mark.parametrize("loop", list(LOOPS))
def test_attending_every_step_alone_is_a_few_percent_of_it(
    loop: str, tmp_path: Path, request: pytest.FixtureRequest, report: Report
) -> None:
    rounds = 30 if is_measuring(request) else 3
    make, loader = LOOPS[loop]
    model, batch = make(), next(iter(loader(1)))
    outputs: list[Tensor] = []
    handles = [
        module.register_forward_hook(lambda module, args, out: outputs.append(out.detach()))
        for module in model.modules()
        if not isinstance(module, nn.MultiheadAttention)
    ]
    model(batch[0])
    for handle in handles:
        handle.remove()
    done = torch.zeros(())
    watch = NonfiniteGuard(model, None, watch=True, replay=False)
    replay = NonfiniteGuard(model, None, watch=False, replay=True)
    seconds = {
        "watch_nonfinite": median_seconds(lambda: watch.run(0, lambda: done, lambda: done, ()), rounds)
        + median_seconds(lambda: [is_finite(output) for output in outputs], rounds),
        "replay": median_seconds(lambda: replay.run(0, lambda: done, lambda: done, ()), rounds),
    }
    if is_measuring(request):
        step = seconds_per_step(loop, [], tmp_path, steps=40)
        for name, own in seconds.items():
            limit = Target(limit=ATTENDING_ALONE[name])
            report.figure(ALONE, loop, f"{name}=True", own, ratio=own / step, target=limit)
        for name, own in seconds.items():
            assert own <= ATTENDING_ALONE[name] * step, f"{name}: measured {own / step:.2%} of a step"


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One way to train."""

    callbacks: Callable[[Path], list[Callback]]
    target: float | None = None
    """What its ratio to no callback may be."""
    around: Callable[[], AbstractContextManager[None]] = nullcontext


PLAIN: dict[str, Case] = {"no callback": Case(callbacks=lambda folder: [])}
CAPTURING: dict[str, Case] = PLAIN | {
    "never fires": Case(callbacks=lambda folder: [TraceCallback(schedule="at(1000000)")]),
    "every 10, statistics": Case(callbacks=lambda folder: [TraceCallback(schedule=10)], target=1.10),
    "every 10, statistics and 64-bin histograms": Case(
        callbacks=lambda folder: [TraceCallback(schedule=10, histograms=64)], target=1.20
    ),
    "every 10, hand-written monitor": Case(callbacks=lambda folder: [ModuleDataMonitor(10)]),
    "every 10, torchlens LayerProfilerCallback": Case(
        callbacks=lambda folder: [layer_profiler(folder)], around=torch_wrapped
    ),
}
ATTENDING: dict[str, Case] = PLAIN | {
    "never fires, watch_nonfinite": Case(
        callbacks=lambda folder: [TraceCallback(schedule="at(1000000)", watch_nonfinite=True)], target=1.05
    ),
    "never fires, replay": Case(
        callbacks=lambda folder: [TraceCallback(schedule="at(1000000)", replay=True)], target=1.05
    ),
}


def run_case(case: Case, loop: str, folder: Path, steps: int) -> float:
    with case.around():
        return seconds_per_step(loop, case.callbacks(folder), folder / "logs", steps)


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("cases", [CAPTURING, ATTENDING], ids=["capturing", "attending"])
@pytest.mark.parametrize("loop", list(LOOPS))
def test_a_trainer_with_the_callback_stays_within_its_ratio(
    loop: str, cases: dict[str, Case], tmp_path: Path, request: pytest.FixtureRequest, report: Report
) -> None:
    rounds, steps = (ROUNDS, 30) if is_measuring(request) else (1, 12)
    seconds: dict[str, list[float]] = {name: [] for name in cases}
    for round_number in range(rounds):
        for name in cases if round_number % 2 == 0 else reversed(cases):
            seconds[name].append(run_case(cases[name], loop, tmp_path, steps))
    if not is_measuring(request):
        return
    timings = {name: timing(values, seconds["no callback"]) for name, values in seconds.items()}
    targets = {name: Target(limit=case.target) for name, case in cases.items() if case.target}
    report.timings(ATTENDING_TABLE if cases is ATTENDING else CAPTURING_TABLE, loop, timings, targets)
    for name, target in targets.items():
        assert timings[name].ratio <= target.limit * 1.1, f"{loop}, {name}: {timings[name].ratio:.3f}x"
