"""MonitoredRun: a monitor on one fit, validate, test or predict of a Trainer."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from tl_integrations.callbacks.bracket import Bracket
from tl_integrations.callbacks.parameters import ParameterWatch
from tl_integrations.callbacks.progress import current_step, eval_moment, train_context
from tl_integrations.capture.events import Moment, Record
from tl_integrations.monitor import StepMonitor
from tl_integrations.schedule.context import StepContext

Which = Literal["first", "last", "all"]

LOGGING = ("log", "log_dict")
"""Methods whose ops are Lightning's own and not the user's training step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Which forwards of a due step are captured."""

    stages: tuple[str, ...] = ("train",)
    eval_batches: tuple[int, ...] = (0,)
    """Batches of each loader and evaluation run."""
    microbatches: Which = "first"
    """Which forwards of an accumulated step."""
    calls: Which = "first"
    """Which calls of `training_step` within a batch."""


class MonitoredRun:
    """Arms a monitor around the step methods of a module on the batches that are due.

    Args:
        monitor: Bound to `module`.
        module: The LightningModule that the Trainer runs, never its wrapper.
        policy: Which forwards of a due step are captured.
        parameters: What looks at the parameters of a captured step.
    """

    def __init__(
        self,
        monitor: StepMonitor,
        module: LightningModule,
        policy: Policy,
        parameters: ParameterWatch | None = None,
    ) -> None:
        self.monitor = monitor
        self._parameters = parameters
        self._moment: Moment | None = None
        self._module = module
        self._policy = policy
        self._brackets: list[Bracket] = []
        self._context = StepContext(step=-1)
        self._began = time.monotonic()
        self._unread: Tensor | None = None

    @property
    def is_armed(self) -> bool:
        """Whether brackets stand on the module."""
        return bool(self._brackets)

    def begin_train_batch(self, trainer: Trainer) -> None:
        """Arm if this batch's step is due; called only from the step on that the schedule names."""
        if self.is_armed:
            # The module skipped the batch that was armed, and Lightning tells nobody.
            self.abort()
        step = current_step(trainer)
        self._observe_late(step)
        microbatch = self._context.microbatch + 1 if step == self._context.step else 0
        self._context = train_context(trainer, microbatch, time.monotonic() - self._began)
        wanted = self._policy.microbatches
        if wanted == "last" and not self._context.is_last_microbatch:
            return
        held = self._moment is not None and self._moment.step == step
        if not (held and wanted == "first") and self.monitor.is_due(self._context):
            self._moment = Moment(step=step, microbatch=microbatch, rank=trainer.global_rank)
            self._arm("training_step", self._moment)

    def before_optimizer_step(self, optimizer: Optimizer) -> None:
        """Look at the parameters that a captured step is about to change."""
        if self._parameters is not None and self._moment is not None:
            self._parameters.before_optimizer_step(optimizer)

    def end_train_batch(self, loss: Tensor | None) -> None:
        """Disarm, hand over what the batch captured, and tell a reactive schedule how it went.

        Args:
            loss: What the batch came to, divided by the microbatches of a step as Lightning does; any device.
        """
        self.disarm()
        # Parameters change only with the last microbatch, so their step is held until then.
        waits = self._policy.microbatches == "all" or self._parameters is not None
        if self._moment is not None and waits and not self._context.is_last_microbatch:
            if self._policy.microbatches == "all":
                self.monitor.hand_over()
        elif self._moment is not None:
            self.monitor.finish(self._as_number(loss), self._parameter_records())
            self._moment = None
        elif self.monitor.schedule.reactive:
            self._observe(loss)

    def begin_eval_batch(self, trainer: Trainer, stage: str, batch: int, dataloader_idx: int) -> None:
        """Arm if this evaluation batch is one of those wanted; never while sanity checking."""
        self.disarm()
        policy = self._policy
        if stage in policy.stages and batch in policy.eval_batches and not trainer.sanity_checking:
            self._arm(STEP_METHODS[stage], eval_moment(trainer, stage, batch, dataloader_idx))

    def end_eval_batch(self) -> None:
        """Disarm and hand over what the batch captured."""
        if self.is_armed:
            self.disarm()
            self.monitor.hand_over()

    def disarm(self) -> None:
        """Take every bracket off; nothing of ours is left on the module."""
        brackets, self._brackets = self._brackets, []
        for bracket in reversed(brackets):
            bracket.remove()

    def abort(self) -> None:
        """Disarm and forget the running step: it did not end."""
        self.disarm()
        self._moment = None
        self.monitor.abort()

    def _parameter_records(self) -> list[Record]:
        if self._parameters is None or self._moment is None:
            return []
        return self._parameters.take(self._moment)

    def _observe(self, loss: Tensor | None) -> None:
        if loss is not None and loss.device.type != "cpu":
            # Read at the next step: asking a device for a number now would make this step wait for it.
            self._unread = loss.detach()
            return
        self.monitor.observe(self._context, loss=self._as_number(loss))

    def _observe_late(self, step: int) -> None:
        loss, self._unread = self._unread, None
        if loss is not None:
            self.monitor.observe(self._context, loss=self._as_number(loss), upcoming=step)

    def _as_number(self, loss: Tensor | None) -> float | None:
        reactive = self.monitor.schedule.reactive
        return float(loss) * self._context.accumulate if loss is not None and reactive else None

    def _arm(self, method: str, moment: Moment) -> None:
        def around(call: int) -> AbstractContextManager[Any]:
            return self._watch(replace(moment, call=call))

        self._brackets.append(Bracket(self._module, method, around))

    def _watch(self, moment: Moment) -> AbstractContextManager[Any]:
        if moment.call and self._policy.calls == "first":
            return nullcontext()
        if moment.call and self._policy.calls == "last":
            self.monitor.abort()
        return self._watch_without_logging(moment)

    @contextmanager
    def _watch_without_logging(self, moment: Moment) -> Iterator[None]:
        recorder = self.monitor.recorder
        quiet = [Bracket(self._module, name, lambda call: recorder.paused()) for name in LOGGING]
        try:
            with self.monitor.watch(moment):
                yield
        finally:
            for bracket in quiet:
                bracket.remove()


STEP_METHODS = {
    "train": "training_step",
    "validate": "validation_step",
    "test": "test_step",
    "predict": "predict_step",
}
