"""MonitoredRun: a monitor on one fit, validate, test or predict of a Trainer."""

import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any, Literal

from lightning.pytorch import LightningModule, Trainer
from torch import Tensor
from torch.optim import Optimizer

from tl_integrations.callbacks.parameters import ParameterWatch
from tl_integrations.callbacks.progress import current_step, eval_moment, loss_scale_of, train_context
from tl_integrations.callbacks.samples import SampleReader
from tl_integrations.capture.bracket import Bracket, inside
from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.protocols import Outcome
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
        samples: What reads the sample ids of a captured batch.
    """

    def __init__(
        self,
        monitor: StepMonitor,
        module: LightningModule,
        policy: Policy,
        parameters: ParameterWatch | None = None,
        samples: SampleReader | None = None,
    ) -> None:
        self.monitor = monitor
        self._parameters = parameters
        self._samples = samples
        self._moment: Moment | None = None
        self._module = module
        self._policy = policy
        self._brackets: list[Bracket] = []
        self._context = StepContext(step=-1)
        self._began = time.monotonic()
        self._unread: tuple[StepContext, Tensor | None] | None = None

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
        moment = Moment(step=step, microbatch=microbatch, rank=trainer.global_rank)
        if self._is_due():
            self._moment = moment
            self.monitor.loss_scale = loss_scale_of(trainer)
            self._arm("training_step", moment, captured=True)
        elif self.monitor.guard.attends:
            self._arm("training_step", moment, captured=False)

    def _is_due(self) -> bool:
        """Whether this microbatch is one to capture."""
        wanted, context = self._policy.microbatches, self._context
        if wanted == "last" and not context.is_last_microbatch:
            return False
        held = self._moment is not None and self._moment.step == context.step
        return not (held and wanted == "first") and self.monitor.is_due(context)

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
                self.monitor.hand_over(self._sample_records)
        elif self._moment is not None:
            self.monitor.finish(
                self._as_number(loss), lambda: [*self._parameter_records(), *self._sample_records()]
            )
            self._moment = None
        elif self.monitor.attended:
            self._observe(loss)

    def begin_eval_batch(self, trainer: Trainer, stage: str, batch: int, dataloader_idx: int) -> None:
        """Arm if this evaluation batch is one of those wanted; never while sanity checking."""
        self.disarm()
        policy = self._policy
        if stage in policy.stages and batch in policy.eval_batches and not trainer.sanity_checking:
            moment = eval_moment(trainer, stage, batch, dataloader_idx)
            self._arm(STEP_METHODS[stage], moment, captured=True)

    def end_eval_batch(self) -> None:
        """Disarm and hand over what the batch captured."""
        if self.is_armed:
            self.disarm()
            self.monitor.hand_over(self._sample_records)

    def disarm(self) -> None:
        """Take every bracket off; nothing of ours is left on the module."""
        brackets, self._brackets = self._brackets, []
        for bracket in reversed(brackets):
            bracket.remove()

    def abort(self) -> None:
        """Disarm and forget the running step: it did not end."""
        self.disarm()
        self._moment = None
        self._forget_samples()
        self.monitor.abort()

    def close(self, outcome: Outcome) -> None:
        """Abort what runs, learn what is still unread, and finish every sink; never fails on a device."""
        self.abort()
        with suppress(Exception):
            self._observe_late(self._context.step + 1)
            self.monitor.guard.take(self._context.step)
        self.monitor.close(outcome)

    def _parameter_records(self) -> list[Record]:
        if self._parameters is None or self._moment is None:
            return []
        return self._parameters.take(self._moment)

    def _forget_samples(self) -> None:
        if self._samples is not None:
            self._samples.forget()

    def _sample_records(self) -> list[Record]:
        return self._samples.take() if self._samples is not None else []

    def _observe(self, loss: Tensor | None) -> None:
        reads_loss = loss is not None and loss.device.type != "cpu" and self.monitor.schedule.reactive
        if reads_loss or self.monitor.guard.waits:
            # Read at the next step: asking a device for a number now would make this step wait for it.
            self._unread = (self._context, loss.detach() if loss is not None else None)
            return
        self.monitor.observe(self._context, loss=self._as_number(loss))

    def _observe_late(self, step: int) -> None:
        unread, self._unread = self._unread, None
        if unread is not None:
            context, loss = unread
            self.monitor.observe(context, loss=self._as_number(loss), upcoming=step)

    def _as_number(self, loss: Tensor | None) -> float | None:
        reactive = self.monitor.schedule.reactive
        return float(loss) * self._context.accumulate if loss is not None and reactive else None

    def _arm(self, method: str, moment: Moment, *, captured: bool) -> None:
        guard = self.monitor.guard

        def around(call: int, method: Callable[[], Any], args: tuple[Any, ...]) -> Any:
            def forward() -> Any:
                if not captured:
                    return method()
                with self._watch(replace(moment, call=call), args):
                    return method()

            if guard.attends and moment.stage == "train":
                return guard.run(self._context.step, forward, method, args)
            return forward()

        self._brackets.append(Bracket(self._module, method, around))

    def _watch(self, moment: Moment, args: tuple[Any, ...]) -> AbstractContextManager[Any]:
        if moment.call and self._policy.calls == "first":
            return nullcontext()
        if moment.call and self._policy.calls == "last":
            self.monitor.abort()
            self._forget_samples()
        if self._samples is not None:
            self._samples.read(moment, args)
        return self._watch_without_logging(moment)

    @contextmanager
    def _watch_without_logging(self, moment: Moment) -> Iterator[None]:
        recorder = self.monitor.recorder
        quiet = [Bracket(self._module, name, inside(recorder.paused)) for name in LOGGING]
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
