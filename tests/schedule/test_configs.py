"""The same schedules from Hydra configs and from a Lightning command line."""

from typing import Any

import jsonargparse
import pytest
import yaml
from hydra.utils import instantiate

from tl_integrations import schedule as S
from tl_integrations.schedule import Schedule

CASES: list[tuple[str, dict[str, Any], Schedule]] = [
    ("every", {"n": 10, "start": 2}, S.every(10, start=2)),
    ("first", {"count": 3}, S.first(3)),
    ("last", {"count": 2}, S.last(2)),
    ("log_spaced", {"base": 3.0}, S.log_spaced(base=3)),
    ("windows", {"wait": 3, "active": 2}, S.windows(3, 2)),
    ("every_epoch", {"n": 2}, S.every_epoch(2)),
    ("every_seconds", {"seconds": 30.0}, S.every_seconds(30.0)),
    ("on_loss_spike", {"factor": 4.0}, S.on_loss_spike(factor=4)),
    ("on_nonfinite", {"max_fires": 2}, S.on_nonfinite(max_fires=2)),
    ("when", {"function": "tests.schedule.predicates:odd"}, S.when("tests.schedule.predicates:odd")),
    ("never", {}, S.never()),
    ("always", {}, S.always()),
]


class Takes:
    """Stands for a callback."""

    def __init__(self, schedule: Schedule | int | list[int] | str = 100) -> None:
        self.schedule = S.as_schedule(schedule)


def from_command_line(value: str) -> tuple[Schedule, str]:
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Takes, "monitor")
    parsed = parser.parse_args([f"--monitor.schedule={value}"])
    built: Takes = parser.instantiate(parsed).monitor
    return built.schedule, parser.dump(parsed)


@pytest.mark.parametrize(("name", "arguments", "meaning"), CASES, ids=lambda value: str(value)[:20])
def test_hydra_builds_every_schedule(name: str, arguments: dict[str, Any], meaning: Schedule) -> None:
    assert instantiate({"_target_": f"tl_integrations.schedule.{name}", **arguments}) == meaning


def test_hydra_builds_lists_of_steps_and_nested_schedules() -> None:
    assert instantiate({"_target_": "tl_integrations.schedule.at", "_args_": [0, 1]}) == S.at(0, 1)
    limited = {
        "_target_": "tl_integrations.schedule.limit",
        "schedule": {"_target_": "tl_integrations.schedule.every", "n": 10},
        "max_captures": 5,
    }
    assert instantiate(limited) == S.limit(S.every(10), 5)


@pytest.mark.parametrize(("name", "arguments", "meaning"), CASES, ids=lambda value: str(value)[:20])
def test_a_lightning_command_line_builds_every_schedule(
    name: str, arguments: dict[str, Any], meaning: Schedule
) -> None:
    given = {"class_path": f"tl_integrations.schedule.{name}", "init_args": arguments}
    built, dumped = from_command_line(yaml.safe_dump(given, default_flow_style=True))
    assert built == meaning
    again = yaml.safe_load(dumped)["monitor"]["schedule"]
    assert from_command_line(yaml.safe_dump(again, default_flow_style=True))[0] == meaning


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        ("50", S.every(50)),
        ("[0, 10]", S.at(0, 10)),
        ("every(10) | at(0, 1)", S.every(10) | S.at(0, 1)),
        ("{class_path: tl_integrations.schedule.schedules.At, init_args: {steps: [0, 1]}}", S.at(0, 1)),
        (
            "{class_path: tl_integrations.schedule.algebra.AnyOf, init_args: {schedules: "
            "[{class_path: tl_integrations.schedule.every, init_args: {n: 10}}, "
            "{class_path: tl_integrations.schedule.first, init_args: {count: 2}}]}}",
            S.every(10) | S.first(2),
        ),
    ],
)
def test_a_lightning_command_line_reads_shorthands(value: str, meaning: Schedule) -> None:
    assert from_command_line(value)[0] == meaning
