"""What every schedule promises to a loop: `Schedule` of `schedule/algebra.py`.

A new schedule is one more line in `SCHEDULES` and passes unchanged.
"""

import copy
import json
import pickle

import pytest

from tl_integrations import schedule as S
from tl_integrations.schedule import Observation, Schedule, StepContext
from tl_integrations.schedule.parsing import NAMES

SCHEDULES: dict[str, Schedule] = {
    "every": S.every(3, start=1, stop=40),
    "at": S.at(0, 7, 30),
    "first": S.first(4),
    "last": S.last(2),
    "log_spaced": S.log_spaced(base=1.7, include_zero=False),
    "windows": S.windows(3, 2, repeat=4),
    "every_epoch": S.every_epoch(2, batch=3),
    "every_seconds": S.every_seconds(5.0),
    "on_loss_spike": S.on_loss_spike(factor=2.0, window=12, cooldown=3, then=S.first(2)),
    "on_nonfinite": S.on_nonfinite(max_fires=2),
    "when": S.when("tests.schedule.predicates:odd"),
    "limit": S.limit(S.every(2), 5),
    "never": S.never(),
    "always": S.always(),
    "any of": S.every(5) | S.at(2, 3),
    "all of": S.every(2) & S.every(3) - S.at(12),
    "not": ~S.every(4),
}
RESUMED = [name for name in SCHEDULES if name != "every_seconds"]
"""Another process has another clock: what becomes of the waiting time is tested in test_reactive.py."""
STEPS = range(48)


@pytest.fixture(params=SCHEDULES, ids=list(SCHEDULES))
def schedule(request: pytest.FixtureRequest) -> Schedule:
    return copy.deepcopy(SCHEDULES[request.param])


def context(step: int) -> StepContext:
    return StepContext(
        step=step,
        batch=step,
        epoch=step // 10,
        batch_in_epoch=step % 10,
        total_steps=len(STEPS),
        seconds=float(step),
    )


def observed(step: int, captured: bool) -> Observation:
    loss = float("nan") if step == 20 else 50.0 if step in (15, 33) else 1.0
    return Observation(context=context(step), loss=loss, captured=captured)


def walk(schedule: Schedule, steps: range = STEPS) -> list[int]:
    """The captured steps of a loop that asks at every step."""
    found = []
    for step in steps:
        captured = schedule.should_capture(context(step))
        found += [step] * captured
        if captured or schedule.reactive:
            schedule.observe(observed(step, captured))
    return found


def quick_walk(schedule: Schedule) -> list[int]:
    """The same by the quick way: one comparison on most steps."""
    found, upcoming = [], schedule.next_after(-1)
    for step in STEPS:
        if upcoming is not None and step >= upcoming:
            if schedule.should_capture(context(step)):
                found.append(step)
                schedule.observe(observed(step, True))
            elif schedule.reactive:
                schedule.observe(observed(step, False))
            upcoming = schedule.next_after(step)
    return found


def test_every_name_of_the_language_is_here() -> None:
    assert set(NAMES) <= set(SCHEDULES)


def test_the_quick_way_captures_what_asking_each_step_does(schedule: Schedule) -> None:
    assert quick_walk(copy.deepcopy(schedule)) == walk(schedule)


def test_what_comes_next_is_later(schedule: Schedule) -> None:
    for step in (-1, *STEPS):
        upcoming = schedule.next_after(step)
        assert upcoming is None or upcoming > step


def test_asking_changes_nothing(schedule: Schedule) -> None:
    answers = [[schedule.should_capture(context(step)) for step in STEPS] for _ in range(2)]
    assert answers[0] == answers[1]


def test_its_text_is_read_back_as_an_equal_value(schedule: Schedule) -> None:
    again = S.parse(repr(schedule))
    assert again == schedule and hash(again) == hash(schedule) and walk(again) == walk(schedule)


def test_it_travels_to_another_process(schedule: Schedule) -> None:
    again = pickle.loads(pickle.dumps(schedule))
    assert again == schedule and walk(again) == walk(schedule)


@pytest.mark.parametrize("schedule", RESUMED, indirect=True)
@pytest.mark.parametrize("cut", [0, 16, 21, 34])
def test_a_resumed_run_captures_what_an_unbroken_one_does(schedule: Schedule, cut: int) -> None:
    whole = walk(copy.deepcopy(schedule))
    early = walk(schedule, range(cut))
    state = json.loads(json.dumps(schedule.state_dict()))
    resumed = S.parse(repr(schedule))
    assert resumed.load_state_dict(state)
    assert early + walk(resumed, range(cut, len(STEPS))) == whole


def test_a_preview_leaves_it_as_it_was(schedule: Schedule) -> None:
    before = schedule.state_dict()
    shown = schedule.preview(len(STEPS), batches_per_epoch=10)
    assert schedule.state_dict() == before and shown == sorted(set(shown))
    if not schedule.reactive:
        assert shown == walk(schedule)
