"""Schedules that follow from where training is: the step, the epoch, the length of the run."""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import InitVar, dataclass
from math import ceil, log
from operator import index
from typing import Literal, cast

from tl_integrations.errors import ScheduleError
from tl_integrations.schedule.algebra import Schedule
from tl_integrations.schedule.context import StepContext


def whole(value: object, name: str, *, least: int = 0) -> int:
    """`value` as an int that is at least `least`; bools and fractions are refused."""
    try:
        number = None if isinstance(value, bool) else index(value)  # type: ignore[arg-type]
    except TypeError:
        number = None
    if number is None or number < least:
        raise ScheduleError(f"{name}={value!r}: a whole number of at least {least} is needed.")
    return number


def checked(schedule: Schedule, **least: int) -> None:
    """Normalise whole-number fields of a frozen schedule, each with its least value; None stays None."""
    for name, limit in least.items():
        value = getattr(schedule, name)
        if value is not None:
            object.__setattr__(schedule, name, whole(value, f"{schedule.name}: {name}", least=limit))


@dataclass(frozen=True, repr=False)
class Every(Schedule):
    """Every n-th step: `start`, `start + n`, `start + 2 n`, ... before `stop`.

    Args:
        n: Distance between captured steps, at least 1.
        start: The first captured step.
        stop: Captures nothing at or after this step.
        align: `"logger"` is `start = n - 1`, the steps at which Lightning logs with `log_every_n_steps=n`.
    """

    n: int
    start: int = 0
    stop: int | None = None
    align: InitVar[Literal["step", "logger"]] = "step"
    name = "every"

    def __post_init__(self, align: Literal["step", "logger"]) -> None:
        checked(self, n=1, start=0, stop=0)
        if align not in ("step", "logger"):
            raise ScheduleError(f"every: align={align!r} is not known. Use 'step' or 'logger'.")
        if align == "logger":
            if self.start != 0:
                raise ScheduleError(
                    f"every: align='logger' already says where to start, and start={self.start} was given. "
                    "Give one of them."
                )
            object.__setattr__(self, "start", self.n - 1)

    def next_after(self, step: int) -> int | None:
        following = self.start if step < self.start else step + self.n - (step - self.start) % self.n
        return following if self.stop is None or following < self.stop else None

    def should_capture(self, context: StepContext) -> bool:
        step = context.step
        return (
            step >= self.start
            and (step - self.start) % self.n == 0
            and (self.stop is None or step < self.stop)
        )


@dataclass(frozen=True, repr=False)
class At(Schedule):
    """Exactly these steps.

    Args:
        steps: The steps, in any order.
    """

    steps: Sequence[int]
    name = "at"

    def __post_init__(self) -> None:
        if isinstance(self.steps, str | bytes) or not isinstance(self.steps, Iterable):
            raise ScheduleError(f"at: steps={self.steps!r} is no list of steps. Write at(0, 10, 500).")
        steps = sorted({whole(step, "at: step") for step in self.steps})
        if not steps:
            raise ScheduleError("at: no steps were given. Write at(0, 10, 500), or never().")
        object.__setattr__(self, "steps", tuple(steps))

    def next_after(self, step: int) -> int | None:
        place = bisect_right(self.steps, step)
        return self.steps[place] if place < len(self.steps) else None

    def should_capture(self, context: StepContext) -> bool:
        return self.next_after(context.step - 1) == context.step

    def _arguments(self) -> list[str]:
        return [str(step) for step in self.steps]


@dataclass(frozen=True, repr=False)
class First(Schedule):
    """The first steps of a run.

    Args:
        count: How many, at least 1.
    """

    count: int
    name = "first"

    def __post_init__(self) -> None:
        checked(self, count=1)

    def next_after(self, step: int) -> int | None:
        following = max(step + 1, 0)
        return following if following < self.count else None

    def should_capture(self, context: StepContext) -> bool:
        return 0 <= context.step < self.count


@dataclass(frozen=True, repr=False)
class Last(Schedule):
    """The last steps of a run whose length is known.

    Args:
        count: How many, at least 1.
    """

    count: int = 1
    name = "last"

    def __post_init__(self) -> None:
        checked(self, count=1)

    def next_after(self, step: int) -> int | None:
        return step + 1

    def should_capture(self, context: StepContext) -> bool:
        if context.total_steps is None:
            raise ScheduleError(
                f"{self!r} needs the length of the run, which is not known here (an iterable dataset, or no "
                "limit on epochs and steps). Set max_steps, or name the steps with at(...)."
            )
        return context.total_steps - self.count <= context.step < context.total_steps

    def _arguments(self) -> list[str]:
        return [str(self.count)]


@dataclass(frozen=True, repr=False)
class LogSpaced(Schedule):
    """Dense early, sparse later: `start`, `start * base`, `start * base ** 2`, ..., each rounded.

    Args:
        base: Ratio of neighbours, from 1.001 to 1e6.
        start: The first of the growing steps, at least 1.
        stop: Captures nothing at or after this step.
        include_zero: Capture step 0 too.
        per_decade: So many steps per factor of ten, in place of `base`.
    """

    base: float = 2.0
    start: int = 1
    stop: int | None = None
    include_zero: bool = True
    per_decade: int | None = None
    name = "log_spaced"

    def __post_init__(self) -> None:
        checked(self, start=1, stop=0, per_decade=1)
        try:
            base = float(self.base)
        except (TypeError, ValueError):
            base = float("nan")
        if not 1.001 <= base <= 1e6:
            raise ScheduleError(f"log_spaced: base={self.base!r}: a number from 1.001 to 1e6 is needed.")
        if self.per_decade is not None and base != 2.0:
            raise ScheduleError(
                f"log_spaced: base={base} and per_decade={self.per_decade} are two ways to say it. Give one."
            )
        object.__setattr__(self, "base", base)

    def next_after(self, step: int) -> int | None:
        following = 0 if step < 0 and self.include_zero else self._growing(step + 1)
        return following if self.stop is None or following < self.stop else None

    def should_capture(self, context: StepContext) -> bool:
        step = context.step
        return self.next_after(step - 1) == step

    def _growing(self, least: int) -> int:
        """The first growing step that is at least `least`."""
        ratio = self.base if self.per_decade is None else 10 ** (1 / self.per_decade)
        exponent = 0 if least <= self.start else max(0, ceil(log(least / self.start) / log(ratio)) - 2)
        while True:
            step = round(self.start * ratio**exponent)
            if step >= least:
                return step
            exponent += 1


@dataclass(frozen=True, repr=False)
class Windows(Schedule):
    """Pauses and runs of captured steps in turn.

    Args:
        wait: Steps of each pause.
        active: Captured steps after each pause, at least 1.
        repeat: How many pairs; 0 goes on for ever.
        skip_first: Steps before the first pause.
    """

    wait: int
    active: int
    repeat: int = 0
    skip_first: int = 0
    name = "windows"

    def __post_init__(self) -> None:
        checked(self, wait=0, active=1, repeat=0, skip_first=0)

    def next_after(self, step: int) -> int | None:
        cycle, place = divmod(max(step + 1 - self.skip_first, 0), self.wait + self.active)
        following = self.skip_first + cycle * (self.wait + self.active) + max(place, self.wait)
        return following if self.repeat == 0 or cycle < self.repeat else None

    def should_capture(self, context: StepContext) -> bool:
        return self.next_after(context.step - 1) == context.step


@dataclass(frozen=True, repr=False)
class EveryEpoch(Schedule):
    """One step of every n-th epoch.

    Args:
        n: Distance between such epochs, at least 1.
        batch: The step that this batch of the epoch belongs to.
    """

    n: int = 1
    batch: int = 0
    name = "every_epoch"

    def __post_init__(self) -> None:
        checked(self, n=1, batch=0)

    def next_after(self, step: int) -> int | None:
        return step + 1

    def should_capture(self, context: StepContext) -> bool:
        opened = context.batch_in_epoch - context.microbatch
        return context.epoch % self.n == 0 and opened <= self.batch < opened + context.accumulate

    def _looks_at_epochs(self) -> bool:
        return True

    def _arguments(self) -> list[str]:
        return [str(self.n)] if self.batch == 0 else [str(self.n), f"batch={self.batch}"]


@dataclass(frozen=True, repr=False)
class Always(Schedule):
    """Every step."""

    name = "always"

    def next_after(self, step: int) -> int | None:
        return step + 1

    def should_capture(self, context: StepContext) -> bool:
        return True


@dataclass(frozen=True, repr=False)
class Never(Schedule):
    """No step at all."""

    name = "never"

    def next_after(self, step: int) -> int | None:
        return None

    def should_capture(self, context: StepContext) -> bool:
        return False


def at(*steps: int | Iterable[int]) -> At:
    """Exactly these steps: `at(0, 10, 500)`, or one list of them.

    Args:
        *steps: Steps, 0-based, in any order; one step twice counts once.
    Raises:
        ScheduleError: if there is none, or one is no whole number of at least 0.
    """
    if len(steps) == 1 and isinstance(steps[0], Iterable) and not isinstance(steps[0], str | bytes):
        return At(tuple(steps[0]))
    return At(cast(tuple[int, ...], steps))


# The names that texts and people write; the classes are what command lines build from annotations.
every = Every
first = First
last = Last
log_spaced = LogSpaced
windows = Windows
every_epoch = EveryEpoch
always = Always
never = Never
