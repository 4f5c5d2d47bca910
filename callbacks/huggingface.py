"""MonitorCallback: a StepMonitor in the Trainer of HuggingFace transformers."""

from contextlib import AbstractContextManager
from typing import Any

from torch import nn
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tl_integrations.capture.bracket import Bracket, inside
from tl_integrations.capture.events import Moment
from tl_integrations.capture.protocols import Outcome
from tl_integrations.monitor import StepMonitor
from tl_integrations.schedule.context import StepContext


class MonitorCallback(TrainerCallback):
    """Captures the first forward of each optimizer step that the monitor's schedule names.

    Args:
        monitor: Bound to the model that the Trainer trains.

    Example:
        ::

            monitor = StepMonitor(model, schedule=100, save="transformer.h.*", sinks=[sink])
            Trainer(model=model, args=args, train_dataset=rows, callbacks=[MonitorCallback(monitor)]).train()
    """

    def __init__(self, monitor: StepMonitor) -> None:
        self._monitor = monitor
        self._bracket: Bracket | None = None
        self._captured = False

    def on_step_begin(
        self, args: TrainingArguments, state: TrainerState, control: TrainerControl, **kwargs: Any
    ) -> None:
        self._disarm()
        if state.global_step < self._monitor.next_step:
            return
        if self._monitor.is_due(step_context(args, state)):
            self._arm(kwargs["model"], Moment(step=state.global_step))

    def on_substep_end(self, *arguments: Any, **kwargs: Any) -> None:
        self._finish()

    def on_pre_optimizer_step(self, *arguments: Any, **kwargs: Any) -> None:
        self._finish()

    def on_train_end(self, *arguments: Any, **kwargs: Any) -> None:
        self._disarm()
        self._monitor.close(Outcome())

    def _arm(self, model: nn.Module, moment: Moment) -> None:
        def watched() -> AbstractContextManager[Any]:
            # The Trainer tells a callback of no exception, so the bracket is gone before the forward runs.
            self._disarm()
            self._captured = True
            return self._monitor.watch(moment)

        self._bracket = Bracket(model, "forward", inside(watched))

    def _disarm(self) -> None:
        bracket, self._bracket = self._bracket, None
        if bracket is not None:
            bracket.remove()

    def _finish(self) -> None:
        captured, self._captured = self._captured, False
        if captured:
            self._monitor.finish()


def step_context(args: TrainingArguments, state: TrainerState) -> StepContext:
    """Where the Trainer is, as a schedule sees it."""
    return StepContext(
        step=state.global_step,
        epoch=int(state.epoch or 0),
        accumulate=args.gradient_accumulation_steps,
        total_steps=state.max_steps if state.max_steps > 0 else None,
    )
