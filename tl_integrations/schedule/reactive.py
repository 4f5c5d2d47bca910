"""Schedules that react: to the loss, to values that are not finite, to the clock, to their own captures.

The loss of a step is known only after its forward, so these capture the steps that follow the event.
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from statistics import median
from typing import Any

from tl_integrations.errors import ScheduleError
from tl_integrations.schedule.algebra import Schedule
from tl_integrations.schedule.context import Observation, StepContext
from tl_integrations.schedule.schedules import First, checked

THE_NEXT_STEP = First(1)


@dataclass(slots=True)
class Alarm:
    """What an event schedule remembers."""

    fires: int = 0
    at: int = -1
    """Step of the newest event."""
    origin: int | None = None
    """The step that counts as step 0 of `then`; None: no event is being followed."""
    reason: str = ""
    losses: list[float] = field(default_factory=list)


class Event(Schedule):
    """Waits for an event, then captures what `then` says, counted from the first step that still can be."""

    then: Schedule
    cooldown: int
    max_fires: int
    _alarm: Alarm

    @property
    def reactive(self) -> bool:
        return True

    def next_after(self, step: int) -> int | None:
        return step + 1

    def should_capture(self, context: StepContext) -> bool:
        origin = self._alarm.origin
        return origin is not None and context.step >= origin and self._follows(context, origin)

    def reason(self, context: StepContext) -> str | None:
        return self._alarm.reason if self.should_capture(context) else None

    def _learn(self, observation: Observation) -> None:
        alarm, step = self._alarm, observation.context.step
        what = self._event(observation)
        ready = alarm.fires < self.max_fires and (alarm.fires == 0 or step > alarm.at + self.cooldown)
        if what is not None and ready:
            alarm.fires += 1
            alarm.at, alarm.origin, alarm.reason = step, observation.upcoming, what

    def _follows(self, context: StepContext, origin: int) -> bool:
        return self.then.should_capture(StepContext(step=context.step - origin))

    @abstractmethod
    def _event(self, observation: Observation) -> str | None:
        """The event of this step in words, or None."""

    def _check(self) -> None:
        checked(self, cooldown=0, max_fires=1)
        if not isinstance(self.then, Schedule) or self.then.reactive:
            raise ScheduleError(
                f"{self.name}: then={self.then!r}: a schedule that follows from the step alone is needed, "
                "such as first(3)."
            )
        if self.then.next_after(-1) is None:
            raise ScheduleError(f"{self.name}: then={self.then!r} captures nothing. Use first(3).")

    def _forget(self) -> None:
        object.__setattr__(self, "_alarm", Alarm())

    def _state(self) -> dict[str, Any]:
        alarm = self._alarm
        return {
            "fires": alarm.fires,
            "at": alarm.at,
            "origin": alarm.origin,
            "reason": alarm.reason,
            "losses": list(alarm.losses),
        }

    def _restore(self, state: Mapping[str, Any]) -> None:
        object.__setattr__(self, "_alarm", Alarm(**state))


@dataclass(frozen=True, repr=False)
class OnLossSpike(Event):
    """The steps after a loss that stands out of the recent ones.

    A loss is a spike when it exceeds `median + (factor - 1) * |median|` of the last `window` finite losses,
    for positive losses `factor * median`. It needs 10 losses, or `window` when that is less, to judge.

    Args:
        factor: How many times the median, greater than 1.
        window: How many recent losses make the median.
        cooldown: Steps after an event in which further spikes are ignored.
        max_fires: Events per run.
        then: What to capture, counted from the first step after the event.
    """

    factor: float = 3.0
    window: int = 50
    cooldown: int = 20
    max_fires: int = 10
    then: Schedule = THE_NEXT_STEP
    _alarm: Alarm = field(default_factory=Alarm, init=False, compare=False)
    name = "on_loss_spike"

    def __post_init__(self) -> None:
        self._check()
        checked(self, window=1)
        if isinstance(self.factor, bool) or not isinstance(self.factor, int | float) or not self.factor > 1:
            raise ScheduleError(f"on_loss_spike: factor={self.factor!r}: a number greater than 1 is needed.")
        object.__setattr__(self, "factor", float(self.factor))

    def _event(self, observation: Observation) -> str | None:
        loss, losses = observation.loss, self._alarm.losses
        if loss is None or not isfinite(loss):
            return None
        found = None
        if len(losses) >= min(10, self.window):
            usual = median(losses)
            if loss > usual + (self.factor - 1) * abs(usual):
                step = observation.context.step
                found = f"loss {loss:.4g} at step {step} is above {self.factor:g} x the median {usual:.4g}"
        losses.append(loss)
        del losses[: -self.window]
        return found


@dataclass(frozen=True, repr=False)
class OnNonfinite(Event):
    """The steps after a loss, or an activation that was looked at, was not finite.

    The reason that the captures carry names the first module or op whose output was not finite where that is
    known: the step was captured, or the monitor has `watch_nonfinite=True` or `replay=True`. Else it says
    that it came at or before the step.

    Args:
        max_fires: Events per run.
        cooldown: Steps after an event in which further ones are ignored.
        then: What to capture, counted from the first step after the event.
    """

    max_fires: int = 3
    cooldown: int = 0
    then: Schedule = THE_NEXT_STEP
    _alarm: Alarm = field(default_factory=Alarm, init=False, compare=False)
    name = "on_nonfinite"

    def __post_init__(self) -> None:
        self._check()

    def _event(self, observation: Observation) -> str | None:
        if observation.origin is not None:
            return observation.origin
        step, loss = observation.context.step, observation.loss
        if loss is not None and not isfinite(loss):
            return f"loss {loss} at step {step} is not finite; first non-finite at or before step {step}"
        return None


@dataclass(slots=True)
class Clock:
    """What a time schedule remembers, in seconds of `StepContext.seconds`."""

    last: float = 0.0
    """When the newest capture was."""
    now: float = 0.0
    """Newest time seen."""


@dataclass(frozen=True, repr=False)
class EverySeconds(Schedule):
    """The first step after so much time, again and again; the first time counts from the start of training.

    Args:
        seconds: Time between captures, greater than 0.
    """

    seconds: float
    _clock: Clock = field(default_factory=Clock, init=False, compare=False)
    name = "every_seconds"

    def __post_init__(self) -> None:
        number = isinstance(self.seconds, int | float) and not isinstance(self.seconds, bool)
        if not number or not 0 < self.seconds < float("inf"):
            raise ScheduleError(
                f"every_seconds: seconds={self.seconds!r}: a number greater than 0 is needed."
            )

    @property
    def reactive(self) -> bool:
        return True

    def next_after(self, step: int) -> int | None:
        return step + 1

    def should_capture(self, context: StepContext) -> bool:
        return context.seconds - self._clock.last >= self.seconds

    def _learn(self, observation: Observation) -> None:
        if observation.captured and self.should_capture(observation.context):
            self._clock.last = observation.context.seconds
        self._clock.now = observation.context.seconds

    def _forget(self) -> None:
        object.__setattr__(self, "_clock", Clock())

    def _state(self) -> dict[str, Any]:
        return {"waited": self._clock.now - self._clock.last}

    def _restore(self, state: Mapping[str, Any]) -> None:
        # Another process has another zero: what carries over is how long it has been waiting.
        object.__setattr__(self, "_clock", Clock(last=-float(state["waited"])))


@dataclass(slots=True)
class Count:
    """What a limit remembers."""

    captures: int = 0


@dataclass(frozen=True, repr=False)
class Limit(Schedule):
    """The first captures of a schedule, and then no more.

    Args:
        schedule: The schedule that is limited.
        max_captures: How many of its captures, at least 1.
    """

    schedule: Schedule
    max_captures: int
    _count: Count = field(default_factory=Count, init=False, compare=False)
    name = "limit"

    def __post_init__(self) -> None:
        checked(self, max_captures=1)
        if not isinstance(self.schedule, Schedule):
            raise ScheduleError(f"limit: {self.schedule!r} is no schedule. Write limit(every(10), 50).")

    @property
    def children(self) -> Sequence[Schedule]:
        return (self.schedule,)

    @property
    def _spent(self) -> bool:
        return self._count.captures >= self.max_captures

    def next_after(self, step: int) -> int | None:
        return None if self._spent else self.schedule.next_after(step)

    def should_capture(self, context: StepContext) -> bool:
        return not self._spent and self.schedule.should_capture(context)

    def _learn(self, observation: Observation) -> None:
        if observation.captured and self.should_capture(observation.context):
            self._count.captures += 1

    def _forget(self) -> None:
        object.__setattr__(self, "_count", Count())

    def _state(self) -> dict[str, Any]:
        return {"captures": self._count.captures}

    def _restore(self, state: Mapping[str, Any]) -> None:
        self._count.captures = int(state["captures"])


on_loss_spike = OnLossSpike
on_nonfinite = OnNonfinite
every_seconds = EverySeconds
limit = Limit
