"""Where a Trainer is: its counters as values that schedules and records understand."""

import math
from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Trainer
from torch import Tensor

from tl_integrations.capture.events import Moment
from tl_integrations.schedule.context import StepContext


def current_step(trainer: Trainer) -> int:
    """The step whose forward runs, 0-based: the number Lightning gives its loggers for this batch.

    `global_step` grows by the number of optimizers under manual optimisation and stands still with raw
    optimizers, so it is not used. Right only from `on_train_batch_start` to `on_train_batch_end`.
    """
    return trainer.fit_loop.epoch_loop._batches_that_stepped


def is_rehearsal(trainer: Trainer) -> bool:
    """Whether this is a `fast_dev_run`, which leaves nothing on disk."""
    return bool(getattr(trainer, "fast_dev_run", False))


def last_train_step(trainer: Trainer) -> int:
    """The training step that an evaluation belongs to; 0 before any."""
    step = current_step(trainer)
    return step if trainer.state.fn == "fit" else max(step - 1, 0)


def is_last_microbatch(trainer: Trainer) -> bool:
    """Whether the optimizer steps after this batch."""
    return not trainer.fit_loop._should_accumulate()


def train_context(trainer: Trainer, microbatch: int, seconds: float) -> StepContext:
    """The running batch as a schedule sees it.

    Args:
        microbatch: Which forward of an accumulated step, from 0.
        seconds: Time since the fit began.
    """
    total = trainer.estimated_stepping_batches if _length_is_known(trainer) else None
    return StepContext(
        step=current_step(trainer),
        batch=trainer.fit_loop.epoch_loop.total_batch_idx,
        epoch=trainer.current_epoch,
        batch_in_epoch=trainer.fit_loop.epoch_loop.batch_idx,
        stage="train",
        accumulate=trainer.accumulate_grad_batches,
        microbatch=microbatch,
        is_last_microbatch=is_last_microbatch(trainer),
        total_steps=None if total is None or math.isinf(total) else int(total),
        seconds=seconds,
        rank=trainer.global_rank,
        world_size=trainer.world_size,
    )


def loss_scale_of(trainer: Trainer) -> float:
    """What the loss of this step is multiplied with before backward; 1 without a GradScaler.

    Read before the step: the scaler may change it when the optimizer stepped.
    """
    scaler = getattr(trainer.precision_plugin, "scaler", None)
    return 1.0 if scaler is None else float(scaler.get_scale())


def loss_of(outputs: Any) -> Tensor | None:
    """The loss in what `on_train_batch_end` is given, or None where the step had none."""
    loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
    return loss if isinstance(loss, Tensor) else None


def eval_moment(trainer: Trainer, stage: str, batch: int, dataloader_idx: int) -> Moment:
    """When an evaluation batch runs."""
    return Moment(
        step=last_train_step(trainer),
        stage=stage,
        dataloader_idx=dataloader_idx,
        batch=batch,
        rank=trainer.global_rank,
    )


def _length_is_known(trainer: Trainer) -> Any:
    return trainer.max_steps != -1 or (trainer.max_epochs or -1) > 0


def stages_of(trainer: Trainer) -> frozenset[str]:
    """The stages that the running Trainer function goes through."""
    function = str(trainer.state.fn.value if trainer.state.fn is not None else "")
    return frozenset({"train", "validate"}) if function == "fit" else frozenset({function})
