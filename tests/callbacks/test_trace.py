"""TraceCallback: the right step, the right forward, nothing left behind."""

import copy
import io
import pickle
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from fitting import fit, leftovers, quiet_trainer
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor, nn
from toy_models import LitNet, Mlp, random_loader

import tl_integrations as tl
from tl_integrations.callbacks import TraceCallback
from tl_integrations.callbacks.arguments import refuse_by_rank
from tl_integrations.capture.sinks import MemorySink
from tl_integrations.errors import BundleExistsError, ConfigError, ScheduleError, UnknownNameError
from tl_integrations.options import SummaryOptions


class SeenInputs(Callback):
    """Keeps what a run without any capture sees: the batch and the weights at each step."""

    def __init__(self) -> None:
        self.outputs: dict[int, Tensor] = {}

    def on_train_batch_start(
        self, trainer: Trainer, pl_module: LightningModule, batch: Any, batch_idx: int
    ) -> None:
        frozen = copy.deepcopy(pl_module.net)
        state = torch.get_rng_state()
        self.outputs[trainer.global_step] = frozen.enter(batch[0]).detach()
        torch.set_rng_state(state)


def steps_of(callback: TraceCallback) -> list[int | None]:
    return [capture.step for capture in callback.captures]


def test_captured_steps_are_the_schedules_preview() -> None:
    callback = TraceCallback(schedule="every(3) | at(1)", save="net.enter")
    fit([callback], batches=8)
    assert steps_of(callback) == callback.schedule.preview(8) == [0, 1, 3, 6]


def test_a_stored_activation_equals_an_independent_forward_of_the_same_weights(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    fit([TraceCallback(schedule=3, save="net.enter", storage=path)])
    twin = SeenInputs()
    fit([twin])
    recording = tl.load(path)
    assert recording.steps == [0, 3, 6]
    for step in recording.steps:
        assert torch.equal(recording.at(step)["net.enter"].out, twin.outputs[step])


@pytest.mark.parametrize("save", [None, "net.act", "func('relu')"])
def test_training_ends_in_bitwise_equal_weights_with_and_without_the_callback(save: str | None) -> None:
    plain = fit()
    watched = fit([TraceCallback(schedule=1, save=save, gradients=True)])
    for name, value in plain.state_dict().items():
        assert torch.equal(value, watched.state_dict()[name]), name


def test_nothing_is_attached_off_schedule_or_afterwards() -> None:
    class Look(Callback):
        def __init__(self) -> None:
            self.seen: list[list[str]] = []

        def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *rest: Any) -> None:
            self.seen.append(leftovers(pl_module))

        def on_before_zero_grad(self, trainer: Trainer, pl_module: LightningModule, optimizer: Any) -> None:
            if trainer.global_step % 4:
                self.seen.append(leftovers(pl_module))

    callback, look = TraceCallback(schedule=4), Look()
    module = fit([callback, look])
    assert len(look.seen) == 8 + 6 and not any(look.seen)
    assert leftovers(module) == [] and "log" not in callback.__dict__


@pytest.mark.parametrize("error", [RuntimeError("boom"), KeyboardInterrupt()])
def test_an_exception_leaves_nothing_behind_and_a_readable_bundle(
    error: BaseException, tmp_path: Path
) -> None:
    class Fails(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            if batch_idx == 2:
                raise error
            return super().training_step(batch, batch_idx)

    module = Fails()
    callback = TraceCallback(schedule=1, save="net.act", storage=str(tmp_path / "run.tlspec"))
    with pytest.raises((RuntimeError, SystemExit, KeyboardInterrupt)):
        fit([callback], module)
    assert leftovers(module) == []
    recording = tl.load(tmp_path / "run.tlspec")
    assert recording.steps == [0, 1]
    assert recording.outcome.status in ("failed", "interrupted") and recording.status in repr(recording)


def test_a_step_that_the_module_skips_disarms() -> None:
    class Skips(LitNet):
        def on_train_batch_start(self, batch: Any, batch_idx: int) -> int | None:
            return -1 if batch_idx == 3 else None

    module, callback = Skips(), TraceCallback(schedule=3, save="net.act")
    fit([callback], module)
    assert steps_of(callback) == [0] and leftovers(module) == []


@pytest.mark.parametrize("accumulate", [1, 2, 3])
def test_accumulated_steps_are_captured_once(accumulate: int) -> None:
    callback = TraceCallback(schedule=2, save="net.act")
    fit([callback], batches=12, accumulate_grad_batches=accumulate)
    assert steps_of(callback) == callback.schedule.preview(12 // accumulate)


def test_microbatches_of_a_step_can_all_be_captured_or_only_the_last(tmp_path: Path) -> None:
    every, last = str(tmp_path / "all.tlspec"), str(tmp_path / "last.tlspec")
    fit(
        [
            TraceCallback(schedule=2, save="net.act", storage=every, microbatches="all"),
            TraceCallback(schedule=2, save="net.act", storage=last, microbatches="last"),
        ],
        batches=12,
        accumulate_grad_batches=3,
    )
    keys = [(record.step, record.microbatch) for record in tl.load(every)]
    assert keys == [(0, 0), (0, 1), (0, 2), (2, 0), (2, 1), (2, 2)]
    assert [record.microbatch for record in tl.load(last)] == [2, 2]


class TwoOptimizers(LitNet):
    automatic_optimization = False

    def __init__(self, raw: bool = False) -> None:
        super().__init__()
        self.automatic_optimization = False
        self.raw = torch.optim.SGD(self.net.parameters(), lr=0.1) if raw else None

    def training_step(self, batch: Any, batch_idx: int) -> None:  # type: ignore[override]
        for optimizer in [self.raw] if self.raw is not None else self.optimizers():
            loss = nn.functional.mse_loss(self(batch[0]), batch[1])
            optimizer.zero_grad()
            self.manual_backward(loss)
            optimizer.step()

    def configure_optimizers(self) -> Any:
        if self.raw is not None:
            return None
        return [torch.optim.SGD(self.net.parameters(), lr=0.1) for _ in range(2)]


@pytest.mark.parametrize("raw", [False, True])
def test_several_or_raw_optimizers_do_not_shift_the_steps(raw: bool) -> None:
    callback = TraceCallback(schedule=3, save="net.enter")
    fit([callback], TwoOptimizers(raw))
    assert steps_of(callback) == [0, 3, 6]


class Lbfgs(LitNet):
    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.LBFGS(self.parameters(), lr=0.01, max_iter=4)


@pytest.mark.parametrize(("calls", "seen"), [("first", [0]), ("last", [3]), ("all", [0, 1, 2, 3])])
def test_closures_that_run_the_step_again_are_numbered_calls(
    calls: Any, seen: list[int], tmp_path: Path
) -> None:
    path = str(tmp_path / "run.tlspec")
    fit([TraceCallback(schedule=100, save="net.enter", storage=path, calls=calls)], Lbfgs(Mlp2()), batches=2)
    assert [record.moment.call for record in tl.load(path).at(0)] == seen


class Mlp2(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.enter, self.leave = nn.Linear(8, 8), nn.Linear(8, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(torch.tanh(self.enter(x)))


def test_a_captured_steps_x_axis_is_the_one_of_self_log(tmp_path: Path) -> None:
    logger = TensorBoardLogger(str(tmp_path), name="tb", version=0)
    callback = TraceCallback(schedule=3, save="net.*", histograms=True)
    fit([callback], logger=logger, log_every_n_steps=1)
    events = EventAccumulator(logger.log_dir, size_guidance={"scalars": 0, "histograms": 0, "tensors": 0})
    events.Reload()
    tags = events.Tags()
    assert {event.step for event in events.Scalars("loss")} == set(range(8))
    for layer in ("net.enter", "net.norm", "net.act", "net.drop", "net.leave"):
        assert [event.step for event in events.Scalars(f"act_mean/{layer}")] == [0, 3, 6]
        histograms = events.Histograms(f"act_hist/{layer}")
        assert [event.step for event in histograms] == [0, 3, 6]
        assert all(sum(h.histogram_value.bucket) == h.histogram_value.num for h in histograms)
    assert len(list(Path(logger.log_dir).glob("events*"))) == 1
    assert {tag for tag in tags["scalars"] if tag.startswith("act_")} == {
        f"act_{name}/net.{layer}"
        for name in ("mean", "std", "absmax", "zero_fraction", "nonfinite_fraction")
        for layer in ("enter", "norm", "act", "drop", "leave")
    }


def test_each_logger_gets_one_call_per_captured_step(tmp_path: Path) -> None:
    calls: list[tuple[int | None, int]] = []

    class Counting(CSVLogger):
        def log_metrics(self, metrics: Any, step: int | None = None) -> None:
            calls.append((step, sum(name.startswith("act_") for name in metrics)))

    first, second = Counting(str(tmp_path / "a")), Counting(str(tmp_path / "b"))
    fit([TraceCallback(schedule=4, save="net.act")], logger=[first, second], log_every_n_steps=1000)
    assert [call for call in calls if call[1]] == [(0, 5), (0, 5), (4, 5), (4, 5)]


def test_logged_scalars_are_those_of_an_independent_forward(tmp_path: Path) -> None:
    logger = TensorBoardLogger(str(tmp_path), name="tb", version=0)
    fit([TraceCallback(schedule=3, save="net.enter")], logger=logger, log_every_n_steps=1)
    twin = SeenInputs()
    fit([twin])
    events = EventAccumulator(logger.log_dir, size_guidance={"scalars": 0})
    events.Reload()
    expected: dict[str, Any] = {
        "mean": lambda value: value.mean(),
        "std": lambda value: value.std(correction=0),
        "absmax": lambda value: value.abs().max(),
        "zero_fraction": lambda value: (value == 0).float().mean(),
    }
    for name, formula in expected.items():
        for event in events.Scalars(f"act_{name}/net.enter"):
            assert event.value == pytest.approx(float(formula(twin.outputs[event.step])), rel=1e-5), name


@pytest.mark.parametrize("schedule", ["always()", "every(2)"])
def test_self_log_with_a_reduction_of_its_own_lives_beside_a_capture(schedule: str) -> None:
    class Logs(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            loss = nn.functional.mse_loss(self(batch[0]), batch[1])
            self.log("loss", loss, on_step=True, on_epoch=True, reduce_fx="mean")
            self.log("largest", loss, on_epoch=True, reduce_fx="max")
            self.log_dict({"twice": 2 * loss}, on_epoch=True, reduce_fx=torch.mean)
            return loss

    callback = TraceCallback(schedule=schedule, save="func('relu') | module('net.enter')")
    fit([callback], Logs(), max_epochs=2)
    assert steps_of(callback) == callback.schedule.preview(16)


def test_self_log_in_a_captured_step_is_neither_disturbed_nor_captured(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    fit([TraceCallback(schedule=1, save=tl.where(lambda event: event.address == ""), storage=path)])
    names = {record.func_name for record in tl.load(path).at(0)}
    assert names == {"mse_loss"}


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"save": "net.entr"}, UnknownNameError, "net.enter"),
        ({"storage": "{taken}"}, BundleExistsError, "overwrite"),
    ],
)
def test_a_users_mistake_is_raised_before_step_0(
    arguments: dict[str, Any], error: type[Exception], words: str, tmp_path: Path
) -> None:
    fit([TraceCallback(schedule=8, save="net.act", storage=str(tmp_path / "taken.tlspec"))])
    arguments = {k: v.format(taken=tmp_path / "taken.tlspec") for k, v in arguments.items()}
    module = LitNet()
    with pytest.raises(error, match=words):
        fit([TraceCallback(**arguments)], module)
    assert leftovers(module) == []


def test_an_unwritable_folder_is_refused_before_step_0(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(tl.errors.BundleError, match="file"):
        fit([TraceCallback(storage=str(tmp_path / "file" / "run.tlspec"))])


def test_a_schedule_that_does_not_parse_is_refused_at_once() -> None:
    with pytest.raises(ScheduleError, match="evry"):
        TraceCallback(schedule="evry(3)")


def test_a_live_module_is_not_a_config() -> None:
    with pytest.raises(ConfigError, match="thunk"):
        fit([TraceCallback(config=nn.Linear(1, 1))])


def test_a_failing_sink_disables_the_monitor_once_and_training_goes_on() -> None:
    class Broken:
        needs = tl_needs()

        def write(self, captured: Any) -> None:
            raise OSError("disk gone")

        def flush(self) -> None: ...

        def close(self, outcome: Any = None) -> None: ...

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        module = fit([TraceCallback(schedule=1, save="net.act", sinks=[Broken()])])
    assert sum("disk gone" in str(warning.message) for warning in caught) == 1
    assert leftovers(module) == []
    with pytest.raises(OSError, match="disk gone"):
        fit([TraceCallback(schedule=1, save="net.act", sinks=[Broken()], on_error="raise")])


def tl_needs() -> Any:
    from tl_integrations.capture.protocols import SinkNeeds

    return SinkNeeds(payloads=True)


def test_a_model_copied_or_saved_inside_a_captured_step_is_clean() -> None:
    copies: list[nn.Module] = []

    class Copies(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            copies.append(copy.deepcopy(self.net))
            torch.save(self.net, io.BytesIO())
            return super().training_step(batch, batch_idx)

    fit([TraceCallback(schedule=1, save="func('relu')")], Copies(), batches=3)
    assert len(copies) == 3 and all(leftovers(net) == [] for net in copies)


def test_the_callback_pickles_before_and_after_a_fit() -> None:
    callback = TraceCallback(schedule="every(2)", save="net.act")
    pickle.loads(pickle.dumps(callback))
    fit([callback])
    copied = pickle.loads(pickle.dumps(callback))
    assert steps_of(copied) == steps_of(callback) == [0, 2, 4, 6]
    copy.deepcopy(callback)


def test_sanity_checking_is_never_captured() -> None:
    class WithVal(LitNet):
        def val_dataloader(self) -> Any:
            return random_loader(2)

    callback = TraceCallback(schedule=4, save="net.act", stages=["train", "validate"])
    fit([callback], WithVal(), num_sanity_val_steps=2)
    assert [(c.stage, c.step) for c in callback.captures] == [("train", 0), ("train", 4), ("validate", 7)]


def test_training_steps_are_captured_only_where_train_is_among_the_stages() -> None:
    class WithVal(LitNet):
        def val_dataloader(self) -> Any:
            return random_loader(2)

    callback = TraceCallback(schedule=1, save="net.act", stages=["validate"])
    fit([callback], WithVal())
    assert [(capture.stage, capture.step) for capture in callback.captures] == [("validate", 7)]


def test_evaluation_batches_carry_stage_loader_and_batch(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    callback = TraceCallback(
        schedule=100,
        save="net.act",
        storage=path,
        stages=["train", "validate", "test", "predict"],
        eval_batches=[0, 2],
    )
    module = LitNet()
    trainer = quiet_trainer([callback])
    trainer.fit(module, random_loader(4))
    trainer.validate(module, [random_loader(3), random_loader(3)], verbose=False)
    trainer.test(module, random_loader(3), verbose=False)
    trainer.predict(module, random_loader(3))
    keys = [
        (record.stage, record.moment.dataloader_idx, record.moment.batch, record.step)
        for record in tl.load(path)
    ]
    assert keys == [
        ("train", 0, None, 0),
        ("validate", 0, 0, 3),
        ("validate", 0, 2, 3),
        ("validate", 1, 0, 3),
        ("validate", 1, 2, 3),
        ("test", 0, 0, 3),
        ("test", 0, 2, 3),
        ("predict", 0, 0, 3),
        ("predict", 0, 2, 3),
    ]


@pytest.mark.parametrize("keep", ["payloads", "statistics"])
def test_tensors_of_an_inference_mode_evaluation_are_kept_as_ordinary_ones(keep: str) -> None:
    class Looks(LitNet):
        def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
            assert torch.is_inference_mode_enabled()
            return super().predict_step(batch, batch_idx)

    summaries = SummaryOptions(statistics=("mean",))
    sink = MemorySink(payloads=keep == "payloads", summaries=summaries)
    module = Looks()
    callback = TraceCallback(save="net.enter", stages=["predict"], sinks=[sink])
    quiet_trainer([callback]).predict(module, random_loader(2))
    (record,) = sink.recording
    expected = module.net.enter(next(iter(random_loader(2)))[0]).detach()
    assert record.statistics is not None
    assert record.statistics["mean"] == pytest.approx(float(expected.mean()), abs=1e-6)
    if keep == "payloads":
        assert not record.out.is_inference() and torch.equal(record.out, expected)
        record.out.add_(1.0)


def test_a_budget_of_bytes_ends_the_capture_and_the_run_goes_on(tmp_path: Path) -> None:
    path, size = str(tmp_path / "run.tlspec"), 4 * 8 * 4
    callback = TraceCallback(schedule=1, save="net.enter", storage=path, max_bytes=3 * size)
    fit([callback], batches=8)
    assert steps_of(callback) == [0, 1, 2] == tl.load(path).steps
    assert [capture.nbytes for capture in callback.captures] == [size] * 3


def test_the_module_itself_is_captured_once_per_forward(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    fit([TraceCallback(schedule=4, save=["net", "net.enter"], storage=path)], batches=5)
    assert [(r.step, r.address) for r in tl.load(path)] == [
        (step, address) for step in (0, 4) for address in ("net.enter", "net")
    ]


def test_a_second_fit_continues_the_callbacks_own_bundle(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    callback = TraceCallback(schedule=3, save="net.act", storage=path)
    module = LitNet()
    trainer = quiet_trainer([callback], max_steps=4, max_epochs=-1)
    trainer.fit(module, random_loader(4))
    trainer.fit_loop.epoch_loop.max_steps = 8
    trainer.fit(module, random_loader(4))
    assert steps_of(callback) == [0, 3, 6]
    assert tl.load(path).steps == [0, 3, 6] == callback.recording.steps


@pytest.mark.filterwarnings("ignore:Checkpoint directory .* exists and is not empty")
@pytest.mark.filterwarnings("ignore:You're resuming from a checkpoint that ended before the epoch")
def test_a_resumed_run_has_neither_duplicate_nor_gap(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    saving = ModelCheckpoint(tmp_path, filename="at{step}", every_n_train_steps=4, save_top_k=-1)
    first = TraceCallback(schedule=3, save="net.act", storage=path)
    fit([first, saving], batches=8, enable_checkpointing=True)
    second = TraceCallback(schedule=3, save="net.act", storage=path)
    (checkpoint,) = tmp_path.glob("at*step=4.ckpt")
    torch.load(checkpoint, weights_only=True)
    fit([second, copy.copy(saving)], batches=8, enable_checkpointing=True, ckpt_path=str(checkpoint))
    recording = tl.load(path)
    assert [record.step for record in recording] == [0, 3, 6]


def test_fast_dev_run_captures_but_writes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    callback = TraceCallback(schedule=1, save="net.act", storage="run.tlspec")
    fit([callback], fast_dev_run=True)
    assert steps_of(callback) == [0] and list(tmp_path.iterdir()) == []


def test_budgets_stop_the_capture_for_good() -> None:
    callback = TraceCallback(schedule=1, save="net.act", max_captures=2)
    fit([callback])
    assert steps_of(callback) == [0, 1]


def test_no_tensor_and_no_module_outlives_its_step() -> None:
    import gc
    import weakref

    activations: list[Any] = []

    class Remembers(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            out = self.net.enter(batch[0])
            activations.append(weakref.ref(out))
            return super().training_step(batch, batch_idx)

    class Dead(Callback):
        def on_train_batch_start(self, *arguments: Any) -> None:
            gc.collect()
            assert all(ref() is None for ref in activations)

    callback = TraceCallback(schedule=1, save="net.enter")
    module: Any = fit([callback, Dead()], Remembers(), batches=4)
    alive = weakref.ref(module)
    del module
    gc.collect()
    assert alive() is None


def test_bf16_activations_keep_their_dtype_on_disk(tmp_path: Path) -> None:
    path = str(tmp_path / "run.tlspec")
    fit([TraceCallback(schedule=4, save="net.enter", storage=path)], precision="bf16-mixed")
    assert tl.load(path).at(0)["net.enter"].out.dtype is torch.bfloat16


def test_gradients_of_captured_activations_are_stored(tmp_path: Path) -> None:
    grads: list[Tensor] = []

    class KeepsGrad(LitNet):
        def training_step(self, batch: Any, batch_idx: int) -> Tensor:
            hidden = self.net.enter(batch[0])
            hidden.register_hook(lambda grad: grads.append(grad.clone()))
            return nn.functional.mse_loss(self.net.leave(hidden), batch[1])

    path = str(tmp_path / "run.tlspec")
    fit([TraceCallback(schedule=100, save="net.enter", storage=path, gradients=True)], KeepsGrad(), batches=1)
    assert torch.equal(tl.load(path)[0].grad, grads[0])


def test_the_run_carries_the_config_that_built_its_model(tmp_path: Path) -> None:
    from tl_integrations import language as L

    path = str(tmp_path / "run.tlspec")
    callback = TraceCallback(schedule=4, storage=path, config=lambda: L.call(Mlp)(width=4, depth=2))
    fit([callback])
    assert tl.load(path).config == {"_target_": "toy_models.Mlp", "width": 4, "depth": 2}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"statistics": ["men"]}, "Closest: 'mean'"),
        ({"histograms": -3}, "histograms is -3"),
        ({"eval_batches": ["a"]}, "eval_batches is 'a'"),
        ({"ranks": ["a"]}, "ranks is 'a'"),
        ({"history": -1}, "history is -1"),
        ({"max_captures": 0}, "at least 1"),
        ({"max_bytes": 1.5}, "at least 1"),
        ({"stages": ["training"]}, "Closest: 'train'"),
        ({"save": 3}, "save=3 selects nothing"),
    ],
)
def test_an_argument_that_cannot_be_is_refused_when_it_is_given(
    arguments: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValueError, match=words):
        TraceCallback(**arguments)


def test_one_statistic_may_be_named_without_a_list() -> None:
    sink = MemorySink()
    callback = TraceCallback(schedule=1, save="net.act", statistics="mean", sinks=[sink])
    assert callback._destinations.statistics == ("mean",)


class FullyShardedDataParallel(nn.Module):
    """Known by its name: the real one needs processes."""


@pytest.mark.parametrize("schedule", ["on_nonfinite()", "every_seconds(5)", "every(2) | on_loss_spike()"])
def test_ranks_that_wait_for_each_other_do_not_decide_by_their_own_loss(schedule: str) -> None:
    reactive, sharded = tl.schedule.parse(schedule), LitNet(FullyShardedDataParallel())
    with pytest.raises(ScheduleError, match="4 ranks of a compiled model"):
        refuse_by_rank(reactive, LitNet(), 4, compiled=True)
    with pytest.raises(ScheduleError, match="4 ranks of a sharded model"):
        refuse_by_rank(reactive, sharded, 4, compiled=False)
    refuse_by_rank(reactive, LitNet(), 4, compiled=False)
    refuse_by_rank(reactive, sharded, 1, compiled=True)
    refuse_by_rank(tl.schedule.every(2), sharded, 4, compiled=True)
