"""Schedules that react, in a loop that tells them what happened."""

import json
import math
from collections.abc import Callable

import pytest

from tl_integrations import schedule as S
from tl_integrations.schedule import Observation, Schedule, StepContext


def loop(
    schedule: Schedule,
    losses: list[float],
    *,
    start: int = 0,
    seconds: Callable[[int], float] = float,
    nonfinite: tuple[int, ...] = (),
    late: int = 0,
) -> list[int]:
    """Uses a schedule as loops do; `late` steps pass before a loss is on the host."""
    captured: list[int] = []
    waiting: list[Observation] = []
    upcoming = schedule.next_after(start - 1)
    for step, loss in enumerate(losses, start):
        context = StepContext(step=step, seconds=seconds(step))
        while len(waiting) > late:
            seen = waiting.pop(0)
            schedule.observe(
                Observation(
                    context=seen.context, loss=seen.loss, origin=seen.origin, captured=seen.captured,
                    next_step=step,
                )
            )  # fmt: skip
        now = upcoming is not None and step >= upcoming and schedule.should_capture(context)
        captured += [step] * now
        if now or schedule.reactive:
            origin = f"'act' at step {step}" if step in nonfinite else None
            seen = Observation(context=context, loss=loss, origin=origin, captured=now)
            waiting.append(seen)
        upcoming = schedule.next_after(step)
    return captured


def spiky(*spikes: int, steps: int = 60) -> list[float]:
    return [9.0 if step in spikes else 1.0 + 0.1 * (step % 3) for step in range(steps)]


def test_the_step_after_a_loss_spike_is_captured() -> None:
    assert loop(S.on_loss_spike(), spiky(30)) == [31]


def test_then_is_counted_from_the_first_step_that_can_still_be_captured() -> None:
    assert loop(S.on_loss_spike(then=S.first(3)), spiky(30)) == [31, 32, 33]
    assert loop(S.on_loss_spike(then=S.every(5, stop=11)), spiky(30)) == [31, 36, 41]
    assert loop(S.on_loss_spike(then=S.first(3)), spiky(30), late=1) == [32, 33, 34]


def test_a_cooldown_ignores_the_spikes_that_follow() -> None:
    assert loop(S.on_loss_spike(cooldown=10), spiky(30, 35, 40, 41)) == [31, 42]


def test_events_stop_after_max_fires() -> None:
    assert loop(S.on_loss_spike(cooldown=0, max_fires=2), spiky(20, 30, 40)) == [21, 31]


def test_few_losses_are_not_judged() -> None:
    assert loop(S.on_loss_spike(), spiky(5)) == []
    assert loop(S.on_loss_spike(window=3), spiky(5)) == [6]


def test_negative_losses_have_spikes_too() -> None:
    assert loop(S.on_loss_spike(factor=2), [-5.0] * 20 + [3.0] + [-5.0] * 5) == [21]


def test_losses_that_are_not_finite_do_not_make_the_median() -> None:
    assert loop(S.on_loss_spike(), [math.nan, math.inf] * 30) == []


def test_the_step_after_a_nan_is_captured() -> None:
    assert loop(S.on_nonfinite(max_fires=1), [1.0, math.nan, math.nan, 1.0, 1.0]) == [2]
    assert loop(S.on_nonfinite(), [1.0] * 6, nonfinite=(2,)) == [3]


def test_the_reason_names_the_event() -> None:
    schedule = S.every(10) | S.on_loss_spike()
    for step, loss in enumerate(spiky(30, steps=31)):
        schedule.observe(Observation(context=StepContext(step=step), loss=loss))
    reason = schedule.reason(StepContext(step=31))
    assert reason is not None and "step 30" in reason and "9" in reason
    assert schedule.reason(StepContext(step=40)) is None


def test_time_schedules_follow_the_clock_and_not_the_step() -> None:
    assert loop(S.every_seconds(10), [0.0] * 40, seconds=lambda step: 1.5 * step) == [7, 14, 21, 28, 35]


def test_a_limit_counts_only_its_own_captures() -> None:
    assert loop(S.limit(S.every(5), 2) | S.at(6, 12), [0.0] * 30) == [0, 5, 6, 12]


def test_a_schedule_that_stands_in_two_places_learns_once() -> None:
    spike = S.on_loss_spike(max_fires=2, cooldown=0)
    both = (spike & S.always()) | (spike & S.every(1))
    assert loop(both, spiky(20, 30, 40)) == [21, 31]


@pytest.mark.parametrize(
    "schedule",
    [
        S.on_loss_spike(cooldown=15, then=S.first(2)),
        S.limit(S.every(7), 6) | S.on_nonfinite(),
        S.limit(S.on_loss_spike(cooldown=0), 2) | S.at(3),
    ],
    ids=repr,
)
@pytest.mark.parametrize("cut", [1, 31, 32, 45])
def test_a_resumed_run_captures_what_an_unbroken_one_does(schedule: Schedule, cut: int) -> None:
    losses = spiky(30, 44, 52)
    whole = loop(S.parse(repr(schedule)), losses)
    first, second = S.parse(repr(schedule)), S.parse(repr(schedule))
    before = loop(first, losses[:cut])
    last = Observation(context=StepContext(step=cut - 1), loss=losses[cut - 1], captured=cut - 1 in before)
    first.observe(last)
    state = json.loads(json.dumps(first.state_dict()))
    assert second.load_state_dict(state)
    assert before + loop(second, losses[cut:], start=cut) == whole


def test_waiting_time_is_taken_up_by_another_process() -> None:
    first, second = S.every_seconds(10), S.every_seconds(10)
    assert loop(first, [0.0] * 8) == []
    assert second.load_state_dict(first.state_dict())
    assert loop(second, [0.0] * 8) == [4]


def test_the_state_of_another_schedule_is_not_taken() -> None:
    limited = S.limit(S.every(5), 3)
    assert not limited.load_state_dict(S.limit(S.every(5), 2).state_dict())
    assert limited.preview(30) == [0, 5, 10]
