"""Where a NaN began: watched, replayed, captured, or honestly not known."""

import random
from typing import Any

import numpy as np
import pytest
import torch
from fitting import fit, leftovers
from torch import Tensor, nn
from toy_models import LitNet

import tl_integrations as tl
from tl_integrations.callbacks import TraceCallback
from tl_integrations.capture.sinks import MemorySink
from tl_integrations.errors import UnsupportedModelError
from tl_integrations.options import SummaryOptions

pytestmark = pytest.mark.filterwarnings("ignore:Not finite")


class Fragile(nn.Module):
    """Batch norm, dropout and a logarithm that is not finite from one step on."""

    def __init__(self, bad_from: int = 10**9) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.enter, self.norm, self.drop = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.3)
        self.squash, self.leave = Logarithm(bad_from), nn.Linear(8, 2)
        self.register_buffer("mask", torch.tensor([0.0, float("-inf")]))

    def forward(self, x: Tensor) -> Tensor:
        # A mask of infinities is no mistake: what reads it is finite.
        gate = torch.softmax(self.mask, 0)[0]
        return self.leave(self.squash(self.drop(self.norm(self.enter(x))))) * gate


class Logarithm(nn.Module):
    def __init__(self, bad_from: int) -> None:
        super().__init__()
        self.bad_from, self.seen = bad_from, 0
        self.register_buffer("total", torch.zeros(()))
        self.history: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        self.history.append(self.seen)
        self.total = self.total + 1
        shifted = x.square() + (1.0 if self.seen <= self.bad_from else -1e6)
        return torch.tanh(torch.log(shifted))


def trained(callback: TraceCallback | None = None, bad_from: int = 10**9, **options: Any) -> LitNet:
    net = LitNet(Fragile(bad_from))
    fit([callback] if callback is not None else [], net, **options)
    return net


def test_a_replay_names_the_op_and_its_module() -> None:
    callback = TraceCallback(schedule="never()", replay=True)
    with pytest.warns(UserWarning, match="log in 'net.squash' gave the first NaN of step 5"):
        trained(callback, bad_from=5)
    found = callback.first_nonfinite
    assert found is not None and (found.step, found.address, found.func_name) == (5, "net.squash", "log")


def test_a_watch_names_the_module() -> None:
    callback = TraceCallback(schedule="never()", watch_nonfinite=True)
    with pytest.warns(
        UserWarning, match="'net.squash' .Logarithm. is the first watched one not finite at step 5"
    ):
        trained(callback, bad_from=5)
    found = callback.first_nonfinite
    assert found is not None and (found.step, found.address) == (5, "net.squash")


def test_only_the_selected_modules_are_watched() -> None:
    callback = TraceCallback(schedule="never()", save=["net.leave", "net.enter"], watch_nonfinite=True)
    trained(callback, bad_from=5)
    assert callback.first_nonfinite is not None and callback.first_nonfinite.address == "net.leave"


class BadForward(LitNet):
    """Its own forward, and no module in it, gives what is not finite."""

    def forward(self, x: Tensor) -> Tensor:
        return torch.log(self.net(x).abs() - 1e6)


class BadStep(LitNet):
    """The step's own arithmetic gives what is not finite."""

    def training_step(self, batch: Any, batch_idx: int) -> Any:
        return {"loss": super().training_step(batch, batch_idx) / 0}


@pytest.mark.parametrize("save", [None, "net.leave", tl.func("relu")])
@pytest.mark.parametrize(
    ("kind", "address", "words"),
    [(BadForward, "", "the output of the model itself"), (BadStep, None, "the loss is the first")],
)
def test_code_outside_the_watched_modules_is_not_blamed_on_a_later_one(
    kind: type[LitNet], address: str | None, words: str, save: Any
) -> None:
    callback = TraceCallback(schedule="never()", save=save, watch_nonfinite=True)
    with pytest.warns(UserWarning, match=f"{words}.*at step 0"):
        fit([callback], kind())
    found = callback.first_nonfinite
    assert found is not None and (found.step, found.address) == (0, address)


def test_a_captured_step_names_its_first_module_without_either() -> None:
    sink = MemorySink(summaries=SummaryOptions(statistics=("nonfinite_fraction",)))
    callback = TraceCallback(schedule=1, sinks=[sink])
    trained(callback, bad_from=5)
    found = callback.first_nonfinite
    assert found is not None and (found.step, found.address) == (5, "net.squash")


def test_without_any_the_reason_says_at_or_before() -> None:
    callback = TraceCallback(schedule="on_nonfinite(max_fires=1)")
    trained(callback, bad_from=5)
    (capture,) = callback.captures
    assert capture.step == 6 and capture.reason is not None
    assert "first non-finite at or before step 5" in capture.reason


@pytest.mark.parametrize("how", ["watch_nonfinite", "replay"])
def test_the_reason_of_a_capture_on_nonfinite_names_the_culprit(how: str) -> None:
    callback = TraceCallback(schedule="on_nonfinite(max_fires=1)", **{how: True})
    trained(callback, bad_from=5)
    (capture,) = callback.captures
    assert capture.step == 6 and capture.reason is not None and "'net.squash'" in capture.reason


@pytest.mark.parametrize("schedule", ["never()", "every(2)"])
@pytest.mark.parametrize("bad_from", [4, 10**9])
@pytest.mark.parametrize("options", [{}, {"accumulate_grad_batches": 2}, {"precision": "bf16-mixed"}])
def test_training_is_bitwise_the_same_with_both(
    schedule: str, bad_from: int, options: dict[str, Any]
) -> None:
    plain = trained(None, bad_from, **options)
    state = torch.get_rng_state(), random.getstate(), np.random.get_state()[1].tolist()
    callback = TraceCallback(schedule=schedule, watch_nonfinite=True, replay=True, gradients=True)
    watched = trained(callback, bad_from, **options)
    assert torch.equal(state[0], torch.get_rng_state()) and state[1] == random.getstate()
    assert state[2] == np.random.get_state()[1].tolist()
    for name, value in plain.state_dict().items():
        assert torch.equal(value.nan_to_num(), watched.state_dict()[name].nan_to_num()), name
        assert torch.equal(value.isnan(), watched.state_dict()[name].isnan()), name
    assert watched.net.squash.history == plain.net.squash.history
    assert leftovers(watched) == []
    assert (callback.first_nonfinite is None) == (bad_from == 10**9)


def test_a_replayed_step_logs_its_metrics_once() -> None:
    class Counts(LitNet):
        def on_train_epoch_end(self) -> None:
            metric = self.trainer.fit_loop.epoch_loop._results["training_step.loss"]
            self.seen_steps.append(int(metric.cumulated_batch_size) if metric.meta.is_mean_reduction else -1)

        def log(self, name: str, value: Any, **options: Any) -> None:
            super().log(name, value, on_epoch=True, batch_size=1)

    seen = []
    for callbacks in ([], [TraceCallback(schedule="never()", replay=True)]):
        net = Counts(Fragile(5))
        fit(callbacks, net)
        seen.append(net.seen_steps)
    assert seen[0] == seen[1] and len(seen[0]) == 1


def test_a_bad_batch_is_named_as_such() -> None:
    class BadBatch(LitNet):
        def on_before_batch_transfer(self, batch: Any, dataloader_idx: int) -> Any:
            self.seen_steps.append(0)
            x, y = batch
            return (x * float("nan") if len(self.seen_steps) == 3 else x), y

    callback = TraceCallback(schedule="never()", replay=True)
    fit([callback], BadBatch())
    assert callback.first_nonfinite is not None
    assert callback.first_nonfinite.words == "the batch of step 2 is itself not finite: arguments[0][0]"


def test_an_infinity_that_became_a_nan_is_followed_to_where_it_was_made() -> None:
    class Overflows(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.enter, self.grow = nn.Linear(8, 2), Grow()

        def forward(self, x: Tensor) -> Tensor:
            grown = self.grow(self.enter(x))
            return grown - grown

    callback = TraceCallback(schedule="never()", replay=True)
    fit([callback], LitNet(Overflows()), batches=1)
    found = callback.first_nonfinite
    assert found is not None and "NaN of step 0, from an infinity that exp in 'net.grow' gave" in found.words
    assert found.address == "net"


class Grow(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.exp(x * 0 + 1e4)


def test_manual_optimisation_and_compiled_models_are_refused_before_step_0() -> None:
    class Manual(LitNet):
        def __init__(self) -> None:
            super().__init__()
            self.automatic_optimization = False

    with pytest.raises(UnsupportedModelError, match="optimises manually"):
        fit([TraceCallback(replay=True)], Manual())
    net = Fragile()
    net.enter = torch.compile(net.enter, backend="eager")
    with pytest.raises(UnsupportedModelError, match="replay=True"):
        fit([TraceCallback(watch_nonfinite=True)], LitNet(net))


def test_a_step_that_takes_the_iterator_says_that_it_is_not_replayed() -> None:
    class FromIterator(LitNet):
        def training_step(self, dataloader_iter: Any) -> Tensor:  # type: ignore[override]
            (x, y), _, _ = next(dataloader_iter)
            return nn.functional.mse_loss(self(x), y)

    callback = TraceCallback(schedule="never()", replay=True)
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        fit([callback], FromIterator(Fragile(5)))
    assert callback.first_nonfinite is not None and "iterator" in callback.first_nonfinite.words


def run_plain(bad_from: int, steps: int = 8, **options: Any) -> tuple[tl.StepMonitor, Fragile]:
    model = Fragile(bad_from)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    monitor = tl.StepMonitor(model, **options)
    torch.manual_seed(7)
    for step in range(steps):
        with monitor.step(step):
            loss = model(torch.randn(4, 8)).square().mean()
            loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return monitor, model


@pytest.mark.parametrize(
    ("options", "func_name"),
    [({"replay": True}, "log"), ({"watch_nonfinite": True}, "Logarithm"), ({"schedule": 1}, "Logarithm")],
)
def test_a_plain_loop_names_it_too(options: dict[str, Any], func_name: str) -> None:
    sink = MemorySink(summaries=SummaryOptions(statistics=("nonfinite_fraction",)))
    monitor, _ = run_plain(5, **({"schedule": "every(3)", "sinks": [sink]} | options))
    found = monitor.first_nonfinite
    assert found is not None and (found.step, found.address, found.func_name) == (5, "squash", func_name)
    assert str(found.step) in str(monitor.report())


def test_a_plain_loop_is_bitwise_the_same_and_captured_once_per_step() -> None:
    sink = MemorySink()
    options: dict[str, Any] = {"schedule": 2, "save": "func('relu') | func('log')", "sinks": [sink]}
    monitor, watched = run_plain(5, watch_nonfinite=True, replay=True, **options)
    _, plain = run_plain(5, schedule="never()")
    assert [record.step for record in sink.recording] == [0, 2, 4, 6]
    for (name, first), second in zip(plain.state_dict().items(), watched.state_dict().values(), strict=True):
        assert torch.equal(first.nan_to_num(), second.nan_to_num()), name
    assert leftovers(watched) == [] and plain.squash.history == watched.squash.history
    assert [capture.step for capture in monitor.captures] == [0, 2, 4, 6]


def test_every_microbatch_is_watched_and_a_step_still_captured_once() -> None:
    callback = TraceCallback(schedule=1, watch_nonfinite=True)
    trained(callback, bad_from=3, accumulate_grad_batches=2)
    assert [capture.step for capture in callback.captures] == [0, 1, 2, 3]
    assert callback.first_nonfinite is not None and callback.first_nonfinite.step == 1


def test_what_was_found_is_kept_when_the_step_raises() -> None:
    class Checks(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = super().training_step(batch, batch_idx)
            if not torch.isfinite(loss):
                raise FloatingPointError("loss")
            return loss

    callback = TraceCallback(schedule="never()", watch_nonfinite=True)
    with pytest.raises(FloatingPointError):
        fit([callback], Checks(Fragile(5)))
    assert callback.first_nonfinite is not None and callback.first_nonfinite.step == 5
