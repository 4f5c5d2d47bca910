"""What holds for every schedule: the fast path, the algebra, values."""

import copy
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.schedule.strategies import algebraic, composed, contextual, stepwise
from tl_integrations import schedule as S
from tl_integrations.errors import ScheduleError
from tl_integrations.schedule import Schedule, StepContext

HORIZON = 90
anything = composed(stepwise | contextual)


def fires(schedule: Schedule) -> set[int]:
    """The naive twin of `preview`: every step is asked."""
    return {step for step in range(HORIZON) if schedule.should_capture(StepContext(step=step))}


@given(algebraic(stepwise), st.integers(-1, HORIZON))
def test_nothing_fires_between_a_step_and_next_after(schedule: Schedule, step: int) -> None:
    upcoming = schedule.next_after(step)
    assert upcoming is None or upcoming > step
    until = HORIZON if upcoming is None else upcoming
    assert not any(step < each < until for each in fires(schedule))


@given(algebraic(stepwise))
def test_the_fast_path_finds_the_steps_that_asking_each_step_finds(schedule: Schedule) -> None:
    assert schedule.preview(HORIZON) == sorted(fires(schedule))


@given(algebraic(stepwise), algebraic(stepwise))
def test_operators_are_set_operations(a: Schedule, b: Schedule) -> None:
    everything = set(range(HORIZON))
    assert fires(a | b) == fires(a) | fires(b)
    assert fires(a & b) == fires(a) & fires(b)
    assert fires(a - b) == fires(a) - fires(b)
    assert fires(~a) == everything - fires(a)
    assert fires(~(a | b)) == fires(~a & ~b)


@given(anything, anything, anything)
def test_composition_is_associative_and_idempotent_by_value(a: Schedule, b: Schedule, c: Schedule) -> None:
    assert (a | b) | c == a | (b | c)
    assert (a & b) & c == a & (b & c)
    assert a | a == a == a & a and ~~a == a


@given(anything)
def test_repr_parses_back_to_an_equal_schedule(schedule: Schedule) -> None:
    again = S.parse(repr(schedule))
    assert again == schedule and hash(again) == hash(schedule) and repr(again) == repr(schedule)


@given(anything)
def test_schedules_survive_pickle_and_deepcopy(schedule: Schedule) -> None:
    assert pickle.loads(pickle.dumps(schedule)) == schedule
    assert copy.deepcopy(schedule) == schedule


@given(algebraic(stepwise), st.integers(1, 5))
def test_a_limit_keeps_the_first_captures(schedule: Schedule, most: int) -> None:
    assert S.limit(schedule, most).preview(HORIZON) == schedule.preview(HORIZON)[:most]


def test_an_endless_intersection_without_common_steps_does_not_hang() -> None:
    disjoint = S.every(2) & S.every(2, start=1)
    assert disjoint.next_after(10) == 12 and disjoint.preview(1000) == []


def test_an_exhausted_schedule_says_so() -> None:
    assert S.at(0, 5).next_after(5) is None
    assert (S.every(3, stop=10) | S.first(2)).next_after(9) is None
    assert (S.always() & S.never()).next_after(0) is None


def test_preview_leaves_the_schedule_as_it_was() -> None:
    limited = S.limit(S.every(10), 2)
    assert limited.preview(100) == limited.preview(100) == [0, 10]
    assert limited.state_dict()["states"] == {"0": {"captures": 0}}


def test_preview_of_epochs_needs_their_length() -> None:
    with pytest.raises(ScheduleError, match="batches_per_epoch"):
        S.every_epoch(2).preview(20)
    assert S.every_epoch(2).preview(20, batches_per_epoch=5) == [0, 10]


def test_the_last_steps_are_previewed_for_a_run_of_that_length() -> None:
    assert S.last(2).preview(10) == [8, 9]
    assert S.last(2).preview(10, total_steps=100) == []


@pytest.mark.parametrize("other", [3, "every(3)", None])
def test_a_shorthand_is_no_operand(other: object) -> None:
    with pytest.raises(TypeError):
        S.every(3) | other  # type: ignore[operator]


def test_schedules_cannot_be_changed() -> None:
    with pytest.raises(AttributeError):
        S.every(3).n = 4  # type: ignore[misc]
