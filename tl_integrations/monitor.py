"""StepMonitor: a schedule, a recorder and sinks around the steps of any loop."""

import time
import traceback
import warnings
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

from torch import nn

from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.protocols import (
    CapturedStep,
    Outcome,
    Sink,
    SinkContext,
    SinkFactory,
)
from tl_integrations.capture.recorder import Recorder
from tl_integrations.capture.sinks import LazySink, union_of_needs, without_payloads
from tl_integrations.errors import CaptureError
from tl_integrations.reporting.health import examine
from tl_integrations.reporting.series import History
from tl_integrations.reporting.terminal import Report
from tl_integrations.schedule.algebra import Schedule
from tl_integrations.schedule.context import Observation, StepContext
from tl_integrations.schedule.parsing import as_schedule

NEVER = 2**63
"""A step that no loop reaches: what `next_step` is when nothing can fire any more."""

_NOTHING: AbstractContextManager[None] = nullcontext()


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSummary:
    """One captured step, as `captures` lists it."""

    step: int | None
    stage: str
    seconds: float
    """Time the capture took beyond the forward, writing included."""
    nbytes: int
    """Bytes of the tensors that were kept."""
    records: int
    reason: str | None = None
    """The event that a reactive schedule captured it for, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When a monitor has captured enough."""

    max_captures: int | None = None
    max_bytes: int | None = None

    def is_spent(self, captures: Sequence[CaptureSummary]) -> bool:
        if self.max_captures is not None and len(captures) >= self.max_captures:
            return True
        return self.max_bytes is not None and sum(c.nbytes for c in captures) >= self.max_bytes


def _is_nonfinite(record: Record) -> bool:
    return record.statistics is not None and record.statistics.get("nonfinite_fraction", 0.0) > 0


class StepMonitor:
    """Captures inside the steps that a schedule names, and only then.

    Off schedule a step costs one integer comparison and nothing is attached to the model.

    Example:
        ::

            monitor = StepMonitor(model, schedule="every(100)", save="blocks.*", sinks=[sink])
            for step, batch in enumerate(loader):
                with monitor.step(step):
                    model(batch).sum().backward()
                optimizer.step()
            monitor.close()

    Args:
        model: The module whose inside is captured; its addresses are those of `named_modules()`.
        schedule: When: a Schedule, every n steps, a list of steps, or text such as `"every(100) | at(0, 1)"`.
        save: What: a selector, its text, a list of addresses and globs; None: every module's output.
        sinks: Where records go: sinks, or factories such as `tl.to_disk(...)` that open at the first capture.
        gradients: Also keep what autograd delivers for the captured activations.
        graph: Arm the full mode, so that a bundle can become a trace.
        history: Flight recorder: scheduled captures are only remembered, as statistics of the last `history`
            of them, until a reactive schedule fires; then they are written together with its capture.
        budget: When to stop for good.
        context: What the sinks may know of the run.
        on_error: `"warn"`: a failure inside the monitor disables it after one warning and the loop goes on.

    Raises:
        UnknownNameError: if `save` names nothing in the model.
        ScheduleError: if the schedule does not parse.
        BundleError: if a factory's path is taken or cannot be written.
    """

    def __init__(
        self,
        model: nn.Module,
        *,
        schedule: Any = 100,
        save: Any = None,
        sinks: Sequence[Sink | SinkFactory] = (),
        gradients: bool = False,
        graph: bool = False,
        history: int = 0,
        budget: Budget = Budget(),
        context: SinkContext | None = None,
        on_error: Literal["raise", "warn"] = "raise",
    ) -> None:
        if on_error not in ("raise", "warn"):
            raise ValueError(f"on_error is {on_error!r}. Use 'raise' or 'warn'.")
        self.schedule: Schedule = as_schedule(schedule)
        self.captures: list[CaptureSummary] = []
        self.context = context or SinkContext(schedule=repr(self.schedule), selector=str(save or "**"))
        self._sinks = [self._opened_when_needed(sink) for sink in sinks]
        needs = union_of_needs([sink.needs for sink in self._sinks])
        self._recorder = Recorder(
            model,
            save="**" if save is None else save,
            graph=graph,
            summaries=needs.summaries,
            payloads=needs.payloads,
            gradients=gradients,
            on_predicate_error="accumulate" if on_error == "warn" else "fail_fast",
        )
        self._unwritten: deque[CapturedStep] | None = deque(maxlen=history) if history else None
        self._numbers = History(limit=1000)
        self._budget = budget
        self._on_error = on_error
        self._context = StepContext(step=-1)
        self._count = 0
        self.loss_scale = 1.0
        """What the loss is multiplied with before backward (AMP); noted with each gradient."""
        self.next_step = self._bound_after(-1)

    @property
    def recorder(self) -> Recorder:
        """The recorder of the step that runs."""
        return self._recorder

    def is_due(self, context: StepContext) -> bool:
        """Whether the schedule captures this step; moves `next_step` on when it does not."""
        if context.step < self.next_step:
            return False
        self._context = context
        if self.schedule.should_capture(context):
            return True
        self.next_step = self._bound_after(context.step)
        return False

    def watch(self, moment: Moment) -> AbstractContextManager[Any]:
        """Arm for one forward of a due step; every exit disarms."""
        return self._recorder.watch(moment)

    def finish(self, loss: float | None = None, further: Sequence[Record] = ()) -> None:
        """End the due step, after its backward: send what it captured to every sink and move on.

        Args:
            loss: What the step came to, for schedules that react to it.
            further: Records of the same step that no forward made, such as those of parameters.
        """
        captured = self.hand_over(further)
        found = captured is not None and any(_is_nonfinite(record) for record in captured.records)
        self.observe(self._context, loss=loss, nonfinite=found, captured=True)
        if self.next_step != NEVER:
            self.next_step = self._bound_after(self._context.step)

    def hand_over(self, further: Sequence[Record] = ()) -> CapturedStep | None:
        """Send what was captured to every sink; further microbatches of the same step may follow.

        Args:
            further: Records of the same step that no forward made.
        Returns: What was captured, or None where the monitor failed and `on_error` is `"warn"`.
        """
        began = time.perf_counter()
        handed: CapturedStep | None = None
        with self._guard():
            captured = self._recorder.drain(loss_scale=self.loss_scale, accumulate=self._context.accumulate)
            if further:
                captured = replace(captured, records=[*captured.records, *further])
            training = captured.moment.stage == "train"
            reason = self.schedule.reason(self._context) if training else None
            for each in self._to_write(captured, reason):
                for sink in self._sinks:
                    sink.write(each)
            self._numbers.add(captured)
            self._note(captured, captured.seconds + time.perf_counter() - began, reason)
            handed = captured
        return handed

    def observe(
        self,
        context: StepContext,
        *,
        loss: float | None = None,
        nonfinite: bool = False,
        captured: bool = False,
        upcoming: int | None = None,
    ) -> None:
        """Tell the schedule how a step ended; needed after every step where `schedule.reactive`.

        Args:
            context: The step that ended.
            loss: What it came to, not divided by microbatches.
            nonfinite: A captured activation held a NaN or an infinity.
            captured: The step was captured.
            upcoming: The first step that can still be captured; None: the next one.
        """
        self.schedule.observe(
            Observation(
                context=context, loss=loss, nonfinite=nonfinite, captured=captured, next_step=upcoming
            )
        )

    def observe_loss(self, loss: float) -> None:
        """Tell a reactive schedule, in a plain loop, what the step that just ended came to."""
        self.observe(self._context, loss=float(loss))

    def abort(self) -> None:
        """Forget what the running step captured: it did not end."""
        self._recorder.discard()

    def step(
        self, step: int | None = None, *, stage: str = "train"
    ) -> AbstractContextManager[Recorder | None]:
        """One step of a plain loop, its backward included.

        Args:
            step: Its number, 0-based; None counts the calls.
            stage: What the records call it.
        Returns: A context manager that gives the recorder on a scheduled step and None on any other.
        """
        number = self._count if step is None else step
        self._count = number + 1
        if number < self.next_step or not self.is_due(StepContext(step=number, stage=stage)):
            return _NOTHING
        return self._captured_step(Moment(step=number, stage=stage))

    def report(self) -> Report:
        """What the captured statistics say of each layer: a table and words, printed by rich or `print`."""
        return Report(examine(self._numbers))

    def flush(self) -> None:
        """Return when all captured so far is committed."""
        for sink in self._sinks:
            sink.flush()

    def close(self, outcome: Outcome = Outcome()) -> None:
        """Finish every sink in order; a second call does nothing."""
        sinks, self._sinks = self._sinks, []
        self.next_step = NEVER
        errors: list[Exception] = []
        for sink in sinks:
            try:
                sink.close(outcome)
            except Exception as error:
                errors.append(error)
        if errors:
            with self._guard():
                raise errors[0]

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and text: the counter and what the schedule remembers."""
        return {"count": self._count, "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken."""
        self._count = int(state["count"])
        self.schedule.load_state_dict(state["schedule"])
        self.next_step = self._bound_after(self._count - 1)

    @contextmanager
    def _captured_step(self, moment: Moment) -> Iterator[Recorder]:
        try:
            with self.watch(moment):
                yield self._recorder
        except BaseException:
            self.abort()
            raise
        self.finish()

    @contextmanager
    def _guard(self) -> Iterator[None]:
        """Let an error of the monitor's own through, or disable the monitor after one warning."""
        try:
            yield
        except Exception as error:
            self.next_step = NEVER
            self._recorder.discard()
            if self._on_error == "raise":
                raise
            text = "".join(traceback.format_exception(error))
            warnings.warn(
                f"The monitor failed and is disabled for the rest of the run; training goes on.\n{text}",
                stacklevel=2,
            )

    def _to_write(self, captured: CapturedStep, reason: str | None) -> list[CapturedStep]:
        """What goes to the sinks now: the step, after the history that led to it; or nothing yet."""
        if self._unwritten is None or captured.moment.stage != "train":
            return [captured]
        if reason is None:
            self._unwritten.append(without_payloads(captured))
            return []
        led_to_it = list(self._unwritten)
        self._unwritten.clear()
        return [*led_to_it, captured]

    def _note(self, captured: CapturedStep, seconds: float, reason: str | None) -> None:
        summary = CaptureSummary(
            step=captured.moment.step,
            stage=captured.moment.stage,
            seconds=seconds,
            nbytes=captured.nbytes,
            records=len(captured.records),
            reason=reason,
        )
        self.captures.append(summary)
        if self._budget.is_spent(self.captures):
            self.next_step = NEVER

    def _bound_after(self, step: int) -> int:
        bound = self.schedule.next_after(step)
        return NEVER if bound is None else bound

    def _opened_when_needed(self, sink: Sink | SinkFactory) -> Sink:
        if hasattr(sink, "write"):
            return sink  # type: ignore[return-value]
        if not hasattr(sink, "open"):
            raise CaptureError(
                f"{sink!r} is neither a sink nor a sink factory. "
                "Give an object with `write`, or `tl.to_disk(path)`."
            )
        sink.check(self.context)
        return LazySink(sink, lambda: self.context)
