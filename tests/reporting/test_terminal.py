"""What people and scripts get to see of a run's health."""

import json
import math

import pytest
import torch

from tests.reporting.captures import captured, record
from tl_integrations.capture.events import Record
from tl_integrations.reporting.health import examine
from tl_integrations.reporting.series import History
from tl_integrations.reporting.terminal import Report, sparkline


def report() -> Report:
    history = History()
    for step in range(4):
        broken = torch.tensor([math.nan]) if step == 3 else torch.randn(4)
        history.add(captured(step * 10, [record("conv1", torch.randn(8, 3)), record("head", broken)]))
    history.add(captured(30, {"conv1": torch.randn(2)}, stage="validate"))
    return Report(examine(history))


def test_a_report_shows_each_layer_its_course_and_what_looks_wrong() -> None:
    text = str(report())
    assert (
        "train: 2 layers, captured at 4 steps from 0 to 30" in text and "validate: 1 layer, captured" in text
    )
    row = next(line for line in text.splitlines() if "head" in line)
    assert "!" in row and "nonfinite" in row and "not finite" in row
    assert "! 'head' is the first layer that is not finite: 100% of its values at step 30" in text


def test_a_healthy_report_says_so() -> None:
    history = History()
    history.add(captured(0, {"a": torch.randn(5)}))
    assert "Nothing looks wrong." in str(Report(examine(history)))


def test_a_report_of_nothing_measured_does_not_call_it_healthy() -> None:
    history = History()
    assert "nothing was examined" in str(Report(examine(history)))
    history.add(captured(0, [Record(layer="a", address="a")]))
    text = str(Report(examine(history)))
    assert "nothing was examined" in text and "Nothing looks wrong" not in text
    row = next(line for line in text.splitlines() if line.strip().startswith("a "))
    assert "not measured" in row and "ok" not in row
    assert Report(examine(history)).to_dict()["healthy"] is None


def test_a_report_is_plain_data_for_scripts() -> None:
    plain = json.loads(json.dumps(report().to_dict(), allow_nan=False))
    assert plain["healthy"] is False and plain["findings"][0]["layer"] == "head"
    assert plain["stages"]["train"]["steps"] == [0, 10, 20, 30]
    assert plain["stages"]["train"]["layers"]["head"]["mean"] is None


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ([0, 1, 2, 3, 4, 5, 6, 7], "▁▂▃▄▅▆▇█"),
        ([5, 5, 5], "▁▁▁"),
        ([0, math.nan, math.inf, 1], "▁ !█"),
        ([], ""),
        ([math.nan], " "),
    ],
)
def test_a_sparkline(values: list[float], line: str) -> None:
    assert sparkline(values) == line


def test_a_long_sparkline_keeps_both_ends() -> None:
    line = sparkline([float(k) for k in range(1000)], width=10)
    assert len(line) == 10 and line[0] == "▁" and line[-1] == "█"


def test_terminal_codes_in_names_are_shown_and_not_obeyed() -> None:
    history = History()
    for value in (torch.randn(4), torch.tensor([torch.nan])):
        history.add(captured(0, {"\x1b[2J\u202eevil[red]": value}))
    text = str(Report(examine(history)))
    assert "\x1b" not in text and "\u202e" not in text and "evil[red]" in text
