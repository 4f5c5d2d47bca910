"""Each stepwise schedule against its steps written out."""

import pytest

from tests.schedule import predicates
from tl_integrations import schedule as S
from tl_integrations.errors import ScheduleError
from tl_integrations.schedule import Schedule, StepContext


@pytest.mark.parametrize(
    ("schedule", "steps"),
    [
        (S.every(10), [0, 10, 20]),
        (S.every(10, start=5), [5, 15, 25]),
        (S.every(10, stop=20), [0, 10]),
        (S.every(10, align="logger"), [9, 19, 29]),
        (S.at(7, 0, 7), [0, 7]),
        (S.at([3, 1]), [1, 3]),
        (S.first(3), [0, 1, 2]),
        (S.log_spaced(), [0, 1, 2, 4, 8, 16]),
        (S.log_spaced(base=3, start=2, include_zero=False), [2, 6, 18]),
        (S.log_spaced(stop=8), [0, 1, 2, 4]),
        (S.log_spaced(per_decade=3), [0, 1, 2, 5, 10, 22]),
        (S.windows(3, 2), [3, 4, 8, 9, 13, 14, 18, 19, 23, 24, 28, 29]),
        (S.windows(3, 2, repeat=2, skip_first=1), [4, 5, 9, 10]),
        (S.windows(0, 1, repeat=2), [0, 1]),
        (S.when("tests.schedule.predicates:odd") & S.first(6), [1, 3, 5]),
        (S.never(), []),
    ],
    ids=repr,
)
def test_a_schedule_fires_at_exactly_these_steps(schedule: Schedule, steps: list[int]) -> None:
    assert schedule.preview(30) == steps


def test_log_spaced_steps_are_found_far_out() -> None:
    assert S.log_spaced(base=10).next_after(10**12) == 10**13
    assert S.log_spaced(base=2).should_capture(StepContext(step=2**40))


def test_an_epoch_schedule_finds_the_step_that_a_batch_belongs_to() -> None:
    third = S.every_epoch(1, batch=3)
    accumulating = [StepContext(step=k, batch_in_epoch=2 * k, accumulate=2) for k in range(4)]
    assert [each.step for each in accumulating if third.should_capture(each)] == [1]
    second_microbatch = StepContext(step=1, batch_in_epoch=3, microbatch=1, accumulate=2)
    assert third.should_capture(second_microbatch)
    assert not S.every_epoch(2).should_capture(StepContext(step=9, epoch=1))


def test_the_last_steps_need_the_length_of_the_run() -> None:
    assert S.last().should_capture(StepContext(step=9, total_steps=10))
    with pytest.raises(ScheduleError, match="max_steps"):
        S.last().should_capture(StepContext(step=9))


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: S.every(0), "n=0"),
        (lambda: S.every(True), "n=True"),
        (lambda: S.every(1.5), "n=1.5"),
        (lambda: S.every(3, start=-1), "start=-1"),
        (lambda: S.every(3, start=1, align="logger"), "align='logger'"),
        (lambda: S.every(3, align="left"), "align='left'"),
        (lambda: S.at(), "at: no steps"),
        (lambda: S.at("12"), "'12'"),
        (lambda: S.at(-1), "-1"),
        (lambda: S.first(0), "count=0"),
        (lambda: S.log_spaced(base=1), "base=1"),
        (lambda: S.log_spaced(base="x"), "base='x'"),
        (lambda: S.log_spaced(base=3, per_decade=2), "per_decade=2"),
        (lambda: S.windows(1, 0), "active=0"),
        (lambda: S.every_seconds(0), "seconds=0"),
        (lambda: S.on_loss_spike(factor=1), "factor=1"),
        (lambda: S.on_loss_spike(then=S.never()), "captures nothing"),
        (lambda: S.on_nonfinite(then=S.on_nonfinite()), "from the step alone"),
        (lambda: S.limit(10, 5), "10 is no schedule"),
        (lambda: S.when(lambda context: True), "lambda"),
        (lambda: S.when("no_colon"), "no_colon"),
        (lambda: S.when("math:pi2").next_after(0), "pi2"),
        (lambda: S.when("tests.schedule.predicates:not_callable").next_after(0), "cannot be called"),
    ],
)
def test_a_wrong_argument_is_refused_with_its_value(make: object, says: str) -> None:
    with pytest.raises(ScheduleError, match=says.replace("(", r"\(")):
        make()  # type: ignore[operator]


def test_a_predicate_may_be_given_as_the_function_itself() -> None:
    schedule = S.when(predicates.odd)
    assert schedule == S.when("tests.schedule.predicates:odd")


def test_a_predicate_must_decide() -> None:
    with pytest.raises(ScheduleError, match="answered 4 for step 4"):
        S.when(predicates.undecided).should_capture(StepContext(step=4))


def test_a_predicates_own_exception_keeps_its_type_and_names_the_schedule() -> None:
    with pytest.raises(KeyError) as caught:
        S.when(predicates.broken).should_capture(StepContext(step=4))
    assert "step 4" in "".join(caught.value.__notes__)
