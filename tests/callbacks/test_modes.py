"""Captured values stay right in every mode of training."""

from pathlib import Path
from typing import Any

import pytest
import torch
from fitting import fit, leftovers
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter
from torch.utils.checkpoint import checkpoint
from toy_models import LitNet

import tl_integrations as tl
from tl_integrations.callbacks import TraceCallback
from tl_integrations.capture.sinks import MemorySink
from tl_integrations.errors import UnsupportedModelError

# Dynamo looks at `.grad` of tensors that have none.
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")


class Net(nn.Module):
    """Two linear layers around a tanh; the inner part can be checkpointed or compiled."""

    def __init__(self, recompute: bool = False, compiled: bool = False) -> None:
        super().__init__()
        torch.manual_seed(5)
        self.enter = nn.Linear(8, 8)
        self.inner = nn.Sequential(nn.Linear(8, 8), nn.Tanh())
        self.leave = nn.Linear(8, 2)
        self.recompute = recompute
        self.reentrant = False
        if compiled:
            self.inner = torch.compile(self.inner, backend="aot_eager")

    def forward(self, x: Tensor) -> Tensor:
        x = self.enter(x)
        x = checkpoint(self.inner, x, use_reentrant=self.reentrant) if self.recompute else self.inner(x)
        return self.leave(x)


class Manual(LitNet):
    """Two optimizers, each with its own forward."""

    def __init__(self, net: nn.Module) -> None:
        super().__init__(net)
        self.automatic_optimization = False

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        for optimizer in self.optimizers():
            optimizer.zero_grad()
            self.manual_backward(nn.functional.mse_loss(self(batch[0]), batch[1]))
            optimizer.step()

    def configure_optimizers(self) -> Any:
        return [torch.optim.SGD(self.net.parameters(), lr=0.05) for _ in range(2)]


class Lbfgs(LitNet):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(self.parameters(), lr=0.01, max_iter=3)


class TwinForward(Callback):
    """What the first forward of each step computes, from a run without any capture."""

    def __init__(self) -> None:
        self.outputs: dict[int, Tensor] = {}
        self._seen = -1

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        step = trainer.fit_loop.epoch_loop._batches_that_stepped
        if step == self._seen:
            return
        self._seen = step
        with torch.no_grad(), trainer.precision_plugin.forward_context():
            hidden = pl_module.net.enter(batch[0])
            inner = getattr(pl_module.net.inner, "_orig_mod", pl_module.net.inner)
            self.outputs[step] = inner[0](hidden).detach().clone()


MODES: dict[str, tuple[Any, dict[str, Any]]] = {
    "plain": (lambda: LitNet(Net()), {}),
    "accumulate 2": (lambda: LitNet(Net()), {"accumulate_grad_batches": 2}),
    "two optimisers manual": (lambda: Manual(Net()), {}),
    "LBFGS": (lambda: Lbfgs(Net()), {}),
    "bf16": (lambda: LitNet(Net()), {"precision": "bf16-mixed"}),
    "checkpointing": (lambda: LitNet(Net(recompute=True)), {}),
    "compiled": (lambda: LitNet(Net(compiled=True)), {}),
}


@pytest.mark.parametrize("schedule", ["every(2)", "at(0, 3)"])
@pytest.mark.parametrize("mode", list(MODES))
def test_captured_steps_values_and_weights_are_right(mode: str, schedule: str, tmp_path: Path) -> None:
    make, options = MODES[mode]
    path = str(tmp_path / "run.tlspec")
    callback = TraceCallback(schedule=schedule, save="net.inner.0", storage=path, on_error="raise")
    watched = fit([callback], make(), batches=12, **options)
    twin = TwinForward()
    plain = fit([twin], make(), batches=12, **options)
    steps = 12 // options.get("accumulate_grad_batches", 1)
    recording = tl.load(path)
    assert recording.steps == callback.schedule.preview(steps)
    # A compiled module runs eagerly on captured steps, which may round differently.
    close = torch.allclose if mode == "compiled" else torch.equal
    for step in recording.steps:
        (first, *_) = recording.at(step)
        assert close(first.out, twin.outputs[step]), step
    for name, value in plain.state_dict().items():
        assert close(value, watched.state_dict()[name]), name
    assert leftovers(watched) == []


@pytest.mark.parametrize("save", ["**", "func('linear') | func('tanh')"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpointing_of_either_kind_gives_the_events_of_none(reentrant: bool, save: str) -> None:
    seen = []
    for recompute in (False, True):
        sink, net = MemorySink(), Net(recompute=recompute)
        net.reentrant = reentrant
        fit([TraceCallback(schedule=1, save=save, sinks=[sink])], LitNet(net), batches=2)
        seen.append([(record.step, record.name) for record in sink.recording])
        values = [record.out for record in sink.recording]
        assert all(value.isfinite().all() for value in values)
    assert seen[0] == seen[1] and len(seen[0]) > 0


class Silent(LitNet):
    """Without `self.log`, which Lightning cannot have compiled on this torch."""

    def training_step(self, batch: Any, batch_idx: int) -> Tensor:
        return nn.functional.mse_loss(self(batch[0]), batch[1])


def graphs_of(callbacks: list[Callback]) -> int:
    """How many graphs a fit of a compiled LightningModule makes."""
    torch._dynamo.reset()
    counter = CompileCounter()
    fit(callbacks, torch.compile(Silent(Net()), backend=counter), batches=6)
    return counter.frame_count


def test_a_compiled_lightning_module_is_captured_eagerly_and_makes_no_further_graph(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    callback = TraceCallback(schedule="at(0, 3)", save="net.inner.0", storage=path)
    assert graphs_of([callback]) == graphs_of([]) == 1
    recording = tl.load(path)
    assert recording.steps == [0, 3] and all(record.forced_eager for record in recording)


def test_an_inner_compiled_module_gives_every_event_and_makes_no_further_graph() -> None:
    sink = MemorySink()
    counts, events = [], ["net.enter", "net.inner.0", "net.inner.1", "net.inner", "net.leave"]
    for callbacks in ([], [TraceCallback(schedule="at(0, 3)", save="net.**", sinks=[sink])]):
        torch._dynamo.reset()
        counter, net = CompileCounter(), Net()
        net.inner = torch.compile(net.inner, backend=counter)
        fit(callbacks, LitNet(net), batches=6)
        counts.append(counter.frame_count)
    assert counts == [1, 1]
    assert [[record.address for record in sink.recording.at(step)] for step in (0, 3)] == [events, events]


def test_a_compiled_module_can_be_skipped_or_refused_instead() -> None:
    skipping = TraceCallback(schedule=1, save="net.inner.0", compiled="skip")
    fit([skipping], LitNet(Net(compiled=True)), batches=2)
    assert skipping.captures == []
    with pytest.raises(UnsupportedModelError, match="compiled='eager'"):
        fit([TraceCallback(save="net.inner.0", compiled="error")], LitNet(Net(compiled=True)), batches=2)
