"""StepMonitor: a schedule, a recorder and sinks around the steps of any loop."""

import time
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Literal

from torch import nn

from tl_integrations.capture.captures import CaptureSummary, summary_of
from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.flight import FlightRecorder
from tl_integrations.capture.guard import NonfiniteGuard
from tl_integrations.capture.nonfinite import Origin
from tl_integrations.capture.protocols import (
    CapturedStep,
    Outcome,
    Sink,
    SinkContext,
    SinkFactory,
)
from tl_integrations.capture.recorder import Recorder
from tl_integrations.capture.samples import SampleIds, samples_record
from tl_integrations.capture.sinks import opened_when_needed, union_of_needs
from tl_integrations.errors import OptionError
from tl_integrations.options import Budget
from tl_integrations.reporting.health import examine, with_origin
from tl_integrations.reporting.series import History
from tl_integrations.reporting.terminal import Report
from tl_integrations.schedule.algebra import Schedule
from tl_integrations.schedule.context import Observation, StepContext
from tl_integrations.schedule.parsing import as_schedule

NEVER = 2**63
"""A step that no loop reaches: what `next_step` is when nothing can fire any more."""

Further = Callable[[], Sequence[Record]]
"""Makes records of a step; what it raises is an error of the monitor."""

_NOTHING: AbstractContextManager[None] = nullcontext()


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
        watch_nonfinite: Test at every step what the selected modules return, and name the first that was not
            finite: one sum per module, about 2 to 4 % of a step on a CPU (tests/benchmarks/RESULTS.md).
        replay: Run a forward that came out not finite again before backward, with random numbers and buffers
            put back before and after, to name the op it began in. Costs each step a copy of the buffers and a
            look at the output, for which a device is waited for. Python code of that one forward runs twice.
        budget: When to stop for good.
        context: What the sinks may know of the run.
        on_error: `"warn"`: a failure inside the monitor disables it after one warning and the loop goes on.

    Raises:
        UnknownNameError: if `save` names nothing in the model.
        ScheduleError: if the schedule does not parse.
        OptionError: if another argument has a value that it cannot have.
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
        watch_nonfinite: bool = False,
        replay: bool = False,
        budget: Budget = Budget(),
        context: SinkContext | None = None,
        on_error: Literal["raise", "warn"] = "raise",
    ) -> None:
        if on_error not in ("raise", "warn"):
            raise OptionError(f"on_error is {on_error!r}. Use 'raise' or 'warn'.")
        self.schedule: Schedule = as_schedule(schedule)
        self.captures: list[CaptureSummary] = []
        self.context: SinkContext = context or SinkContext(
            schedule=repr(self.schedule), selector=str(save or "**")
        )
        self._sinks = [opened_when_needed(sink, lambda: self.context) for sink in sinks]
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
        self._flight = FlightRecorder(history)
        self._numbers = History(limit=1000)
        self.guard: NonfiniteGuard = NonfiniteGuard(model, save, watch=watch_nonfinite, replay=replay)
        self._budget = budget
        self._on_error = on_error
        self._context = StepContext(step=-1)
        self._count = 0
        self._finished = -1  # the newest step that was captured to its end
        self.loss_scale: float = 1.0
        """What the loss is multiplied with before backward (AMP); noted with each gradient."""
        self.next_step: int = self._bound_after(-1)

    @property
    def recorder(self) -> Recorder:
        """The recorder of the step that runs."""
        return self._recorder

    @property
    def attended(self) -> bool:
        """Whether `observe` is to be called after every step, captured or not."""
        return self.schedule.reactive or self.guard.attends

    @property
    def first_nonfinite(self) -> Origin | None:
        """Where the first value that was not finite was seen, as far as that is known; None: none was."""
        return self.guard.first

    def is_due(self, context: StepContext) -> bool:
        """Whether the schedule captures this step; moves `next_step` on when it does not.

        Args:
            context: Where training is as the step begins.
        """
        if context.step < self.next_step or context.step <= self._finished:
            return False
        self._context = context
        if self.schedule.should_capture(context):
            return True
        self.next_step = self._bound_after(context.step)
        return False

    def watch(self, moment: Moment) -> AbstractContextManager[Any]:
        """Arm for one forward of a due step, whose records say `moment`; every exit disarms.

        Args:
            moment: When the forward runs.
        """
        return self._recorder.watch(moment)

    def finish(self, loss: float | None = None, further: Further = list) -> None:
        """End the due step, after its backward: send what it captured to every sink and move on.

        Args:
            loss: What the step came to, for schedules that react to it.
            further: Makes records of the same step that no forward made, such as those of parameters.
        """
        self._finished = self._context.step
        captured = self.hand_over(further)
        records = captured.records if captured is not None else ()
        self.observe(self._context, loss=loss, records=records, captured=True)
        if self.next_step != NEVER:
            self.next_step = self._bound_after(self._context.step)

    def hand_over(self, further: Further = list) -> CapturedStep | None:
        """Send what was captured to every sink; further microbatches of the same step may follow.

        Args:
            further: Makes records of the same step that no forward made.
        Returns: What was captured; None where the monitor failed and `on_error` is `"warn"`.
        """
        began = time.perf_counter()
        handed: CapturedStep | None = None
        with self._guard():
            captured = self._recorder.drain(loss_scale=self.loss_scale, accumulate=self._context.accumulate)
            captured = captured.joined(further())
            training = captured.moment.stage == "train"
            reason = self.schedule.reason(self._context) if training else None
            for each in self._flight.released(captured, reason):
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
        records: Sequence[Record] = (),
        captured: bool = False,
        upcoming: int | None = None,
    ) -> None:
        """Tell the schedule how a step ended; needed after every step where that is `attended`.

        Args:
            context: The step that ended.
            loss: What it came to, not divided by microbatches.
            records: What was captured of it.
            captured: The step was captured.
            upcoming: The first step that can still be captured; None: the next one.
        """
        origin = self.guard.take(context.step, records, loss)
        words = None if origin is None else origin.words
        self.schedule.observe(
            Observation(context=context, loss=loss, origin=words, captured=captured, next_step=upcoming)
        )

    def observe_loss(self, loss: float) -> None:
        """Tell a reactive schedule, in a plain loop, what the step that just ended came to.

        Args:
            loss: Not divided by microbatches.
        """
        self.observe(self._context, loss=float(loss))

    def abort(self) -> None:
        """Forget what the running step captured: it did not end."""
        self._recorder.discard()

    def step(
        self, step: int | None = None, *, stage: str = "train", sample_ids: SampleIds | None = None
    ) -> AbstractContextManager[Recorder | None]:
        """One step of a plain loop, its backward included.

        Args:
            step: Its number, 0-based; None counts the calls.
            stage: What the records call it.
            sample_ids: Integers that say which samples the batch holds, kept as the record `"sample_ids"`.
        Returns: A context manager that gives the recorder on a scheduled step and None on any other.
        """
        number = self._count if step is None else step
        self._count = number + 1
        if number < self.next_step:
            return _NOTHING
        due = self.is_due(context := StepContext(step=number, stage=stage))
        self._context = context
        captured = self._captured_step(Moment(step=number, stage=stage), sample_ids) if due else _NOTHING
        return captured if not self.guard.attends else self._attended_step(context, captured, due)

    def report(self) -> Report:
        """What the captured statistics say of each layer: a table and words, printed by rich or `print`."""
        return Report(with_origin(examine(self._numbers), self.first_nonfinite))

    def flush(self) -> None:
        """Return when all captured so far is committed."""
        for sink in self._sinks:
            sink.flush()

    def close(self, outcome: Outcome = Outcome()) -> None:
        """Finish every sink in order; a second call does nothing.

        Args:
            outcome: How the run ended, for the sinks.
        Raises: what the first sink raised that could not finish; with `on_error="warn"` a warning says it.
        """
        sinks, self._sinks = self._sinks, []
        self.next_step = NEVER
        self._recorder.close()
        first: list[Exception] = []
        for sink in sinks:
            try:
                sink.close(outcome)
            except Exception as error:
                first = first or [error]
        if first:
            with self._guard():
                # Out of the list: an error that its own frames hold waits for the garbage collector.
                raise first.pop()

    def state_dict(self) -> dict[str, Any]:
        """Plain numbers and text: the counter and what the schedule remembers."""
        return {"count": self._count, "schedule": self.schedule.state_dict()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where `state_dict` was taken.

        Args:
            state: What `state_dict` gave.
        """
        self._count = int(state["count"])
        self._finished = self._count - 1
        self.schedule.load_state_dict(state["schedule"])
        self.next_step = self._bound_after(self._count - 1)

    @contextmanager
    def _captured_step(self, moment: Moment, sample_ids: SampleIds | None) -> Iterator[Recorder]:
        try:
            with self.watch(moment):
                yield self._recorder
        except BaseException:
            self.abort()
            raise
        self.finish(further=lambda: [] if sample_ids is None else [samples_record(moment, sample_ids)])

    @contextmanager
    def _attended_step(
        self, context: StepContext, captured: AbstractContextManager[Recorder | None], due: bool
    ) -> Iterator[Recorder | None]:
        with captured as recorder, self.guard.attending(context.step, self._recorder.paused):
            yield recorder
        if not due:
            self.observe(context)

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

    def _note(self, captured: CapturedStep, seconds: float, reason: str | None) -> None:
        self.captures.append(summary_of(captured, seconds, reason))
        if self._budget.is_spent(len(self.captures), sum(each.nbytes for each in self.captures)):
            self.next_step = NEVER

    def _bound_after(self, step: int) -> int:
        if self.guard.attends:
            # Further microbatches of the step that ended are attended too.
            return step
        bound = self.schedule.next_after(step)
        return NEVER if bound is None else bound
