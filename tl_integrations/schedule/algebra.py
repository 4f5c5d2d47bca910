"""`Schedule`, a value that says which steps to capture, and its algebra `| & ~ -`."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from tl_integrations.errors import ScheduleError
from tl_integrations.schedule.context import Observation, StepContext


class Schedule(ABC):
    """Which steps to capture.

    Schedules are values: equal by what they say, hashable, picklable, and written by `repr` in the text that
    `parse` reads. A loop uses one like this, and so pays one integer comparison on most steps:

        upcoming = schedule.next_after(first_step - 1)
        ...
        if upcoming is None or step < upcoming: skip
        capture = schedule.should_capture(context)
        upcoming = schedule.next_after(step)

    After each captured step the loop calls `observe`; when `reactive` is true, after every step. Only
    `observe` and `load_state_dict` change anything, and what they change is no part of the value.
    """

    name: ClassVar[str]
    """How the schedule is written: `name(arguments)`."""

    @property
    def reactive(self) -> bool:
        """Whether it must be told of every step, captured or not."""
        return any(child.reactive for child in self.children)

    @property
    def children(self) -> Sequence["Schedule"]:
        """The schedules that this one is made of."""
        return ()

    @abstractmethod
    def next_after(self, step: int) -> int | None:
        """A lower bound of the next captured step, so that a loop can skip by one comparison.

        Args:
            step: The newest step that is over; -1 before the first.
        Returns:
            A step greater than `step` before which nothing can fire; None: nothing fires any more.
        """

    @abstractmethod
    def should_capture(self, context: StepContext) -> bool:
        """Whether a step is to be captured; asking changes nothing.

        Args:
            context: Where training is as the step begins.
        Raises:
            ScheduleError: if it needs to know what the loop does not say, such as the length of the run.
        """

    def reason(self, context: StepContext) -> str | None:
        """Why a reactive schedule captures this step, in words; None where no event led to it.

        Args:
            context: Where training is as the step begins.
        """
        found = (child.reason(context) for child in self.children)
        return next((text for text in found if text is not None), None)

    def observe(self, observation: Observation) -> None:
        """Learn how a step ended.

        Args:
            observation: The step, its loss, and whether it was captured.
        """
        # Outer schedules learn first: what they count depends on what the inner ones said before this step.
        # A schedule that stands in two places learns once.
        for each in {id(node): node for node in self._nodes()}.values():
            each._learn(observation)

    def preview(
        self, steps: int, *, total_steps: int | None = None, batches_per_epoch: int | None = None
    ) -> list[int]:
        """The steps in `range(steps)` that would be captured in a run without spikes, NaNs or clocks.

        Args:
            steps: How far to look.
            total_steps: Length of the run; `steps` when not given.
            batches_per_epoch: Needed by schedules that look at the epoch.

        Raises:
            ScheduleError: if the schedule looks at the epoch and `batches_per_epoch` is not given.
        """
        if batches_per_epoch is None and self._looks_at_epochs():
            raise ScheduleError(
                f"{self!r} looks at epochs, and how long one is was not said. "
                f"Call preview({steps}, batches_per_epoch=...)."
            )
        twin = deepcopy(self)
        for node in twin._nodes():
            node._forget()
        length = batches_per_epoch or max(steps, 1)
        found: list[int] = []
        upcoming = twin.next_after(-1)
        while upcoming is not None and upcoming < steps:
            context = StepContext(
                step=upcoming,
                batch=upcoming,
                epoch=upcoming // length,
                batch_in_epoch=upcoming % length,
                total_steps=steps if total_steps is None else total_steps,
            )
            if twin.should_capture(context):
                found.append(upcoming)
                twin.observe(Observation(context=context, captured=True))
            upcoming = twin.next_after(upcoming)
        return found

    def state_dict(self) -> dict[str, Any]:
        """What was learnt so far, in plain Python."""
        states = {str(place): node._state() for place, node in enumerate(self._nodes())}
        return {"schedule": repr(self), "states": {place: state for place, state in states.items() if state}}

    def load_state_dict(self, state: Mapping[str, Any]) -> bool:
        """Take up what `state_dict` gave.

        Args:
            state: What `state_dict` gave, from this process or another.
        Returns:
            False, and nothing is taken, when the state was another schedule's: a resumed run may be given a
            new schedule.
        """
        if state.get("schedule") != repr(self):
            return False
        for place, node in enumerate(self._nodes()):
            if str(place) in state["states"]:
                node._restore(state["states"][str(place)])
        return True

    def _nodes(self) -> Iterator["Schedule"]:
        """This schedule and all it is made of, outer ones first."""
        yield self
        for child in self.children:
            yield from child._nodes()

    def _learn(self, observation: Observation) -> None:
        """Change this schedule's own memory, not its children's."""
        return

    def _state(self) -> dict[str, Any]:
        """Its own memory in plain Python; empty where it has none."""
        return {}

    def _restore(self, state: Mapping[str, Any]) -> None:
        """Take up a memory that `_state` gave."""
        return

    def _forget(self) -> None:
        """Be as new."""
        return

    def _looks_at_epochs(self) -> bool:
        return any(child._looks_at_epochs() for child in self.children)

    def __or__(self, other: object) -> "Schedule":
        return joined(AnyOf, self, other) if isinstance(other, Schedule) else NotImplemented

    def __and__(self, other: object) -> "Schedule":
        return joined(AllOf, self, other) if isinstance(other, Schedule) else NotImplemented

    def __sub__(self, other: object) -> "Schedule":
        return joined(AllOf, self, ~other) if isinstance(other, Schedule) else NotImplemented

    def __invert__(self) -> "Schedule":
        return Not(self)

    def __repr__(self) -> str:
        return f"{self.name}({', '.join(self._arguments())})"

    def _arguments(self) -> list[str]:
        """Arguments as they are written: required ones by place, others by name where they differ."""
        written: list[str] = []
        for each in fields(self):  # type: ignore[arg-type]
            value = getattr(self, each.name)
            if not each.init or value == each.default:
                continue
            if each.default_factory is not MISSING and value == each.default_factory():
                continue
            required = each.default is MISSING and each.default_factory is MISSING
            written.append(repr(value) if required else f"{each.name}={value!r}")
        return written


def flattened(kind: type["AnyOf"] | type["AllOf"], schedules: Sequence[Schedule]) -> tuple[Schedule, ...]:
    """Operands with nested ones of the same kind spread out and repeated ones left out, in order."""
    if not schedules:
        raise ScheduleError(f"{kind.__name__} of no schedules says nothing. Give at least one.")
    spread: list[Schedule] = []
    for each in schedules:
        if not isinstance(each, Schedule):
            raise ScheduleError(
                f"{each!r} is no schedule. Write every(n), at(...), or a text for `tl.schedule.parse`."
            )
        spread += each.schedules if isinstance(each, kind) else [each]
    return tuple(dict.fromkeys(spread))


def joined(kind: type["AnyOf"] | type["AllOf"], *schedules: Schedule) -> Schedule:
    """Operands under one operator; two equal ones are that one."""
    spread = flattened(kind, schedules)
    return spread[0] if len(spread) == 1 else kind(spread)


@dataclass(frozen=True, repr=False)
class AnyOf(Schedule):
    """Captures what one of its schedules captures: `a | b`.

    Args:
        schedules: One or more schedules.
    """

    schedules: Sequence[Schedule]

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedules", flattened(AnyOf, tuple(self.schedules)))

    @property
    def children(self) -> Sequence[Schedule]:
        return self.schedules

    def next_after(self, step: int) -> int | None:
        known = [each.next_after(step) for each in self.schedules]
        return min((each for each in known if each is not None), default=None)

    def should_capture(self, context: StepContext) -> bool:
        return any(each.should_capture(context) for each in self.schedules)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.schedules))


@dataclass(frozen=True, repr=False)
class AllOf(Schedule):
    """Captures what all of its schedules capture: `a & b`, and with a complement `a - b`.

    Args:
        schedules: One or more schedules.
    """

    schedules: Sequence[Schedule]

    def __post_init__(self) -> None:
        object.__setattr__(self, "schedules", flattened(AllOf, tuple(self.schedules)))

    @property
    def children(self) -> Sequence[Schedule]:
        return self.schedules

    def next_after(self, step: int) -> int | None:
        # The furthest of the lower bounds is one too; a search for the first common step could walk for ever.
        furthest = step + 1
        for each in self.schedules:
            bound = each.next_after(step)
            if bound is None:
                return None
            furthest = max(furthest, bound)
        return furthest

    def should_capture(self, context: StepContext) -> bool:
        return all(each.should_capture(context) for each in self.schedules)

    def __repr__(self) -> str:
        return " & ".join(f"({each!r})" if isinstance(each, AnyOf) else repr(each) for each in self.schedules)


@dataclass(frozen=True, repr=False)
class Not(Schedule):
    """Captures what its schedule does not: `~a`.

    Args:
        schedule: The schedule whose steps are left out.
    """

    schedule: Schedule

    @property
    def children(self) -> Sequence[Schedule]:
        return (self.schedule,)

    def next_after(self, step: int) -> int | None:
        return step + 1

    def should_capture(self, context: StepContext) -> bool:
        return not self.schedule.should_capture(context)

    def reason(self, context: StepContext) -> str | None:
        return None

    def __invert__(self) -> Schedule:
        return self.schedule

    def __repr__(self) -> str:
        inner = repr(self.schedule)
        return f"~({inner})" if isinstance(self.schedule, AnyOf | AllOf) else f"~{inner}"
