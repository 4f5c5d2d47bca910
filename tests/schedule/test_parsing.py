"""Shorthands and texts, and what becomes of those that say nothing."""

import sys
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from omegaconf import OmegaConf

from tl_integrations import schedule as S
from tl_integrations.errors import ScheduleError
from tl_integrations.schedule import Schedule


@pytest.mark.parametrize(
    ("value", "meaning"),
    [
        (100, S.every(100)),
        ([0, 10], S.at(0, 10)),
        ((0, 10), S.at(0, 10)),
        (None, S.never()),
        (timedelta(minutes=5), S.every_seconds(300)),
        ("100", S.every(100)),
        ("[0, 10]", S.at(0, 10)),
        ("S.every(100) | schedule.at(0)", S.every(100) | S.at(0)),
        ("every(n=100) - first(5)", S.every(100) - S.first(5)),
        ("~(every(2) | at(3)) & first(9)", ~(S.every(2) | S.at(3)) & S.first(9)),
        ("limit(every(10), max_captures=5)", S.limit(S.every(10), 5)),
        ("limit(every(10) | at(3), 5)", S.limit(S.every(10) | S.at(3), 5)),
        (" every(\n 10 ) ", S.every(10)),
        (["every(100)", [0, 1]], S.every(100) | S.at(0, 1)),
        ({"every": 100, "at": [0], "stop": 1000}, S.every(100, stop=1000) | S.at(0)),
        ({"every": {"n": 10, "start": 3}}, S.every(10, start=3)),
        ({"log_spaced": {"base": 3}, "first": 2}, S.log_spaced(base=3) | S.first(2)),
        ({"on_loss_spike": {"then": 5}}, S.on_loss_spike(then=S.every(5))),
        ({"limit": {"schedule": "every(3)", "max_captures": 2}}, S.limit(S.every(3), 2)),
        ({"always": None}, S.always()),
    ],
    ids=repr,
)
def test_a_shorthand_means_a_schedule(value: object, meaning: Schedule) -> None:
    assert S.as_schedule(value) == meaning


def test_config_containers_are_read_as_lists_and_mappings() -> None:
    config = OmegaConf.create({"a": [0, 5], "b": {"every": 100, "at": [0, 1], "stop": 1000}})
    assert S.as_schedule(config.a) == S.at(0, 5)
    assert S.as_schedule(config.b) == S.every(100, stop=1000) | S.at(0, 1)
    assert type(S.as_schedule(config.a).steps) is tuple  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    [
        "", "every(", "evry(10)", "every(10) or at(0)", "every(ten=1)", "every()", "every(1.5)", "true",
        "every(10).n", "__import__('os').system('x')", "every(*[1])", "every(**{})", "lambda: 1", "every(x)",
        "(every)(10)(3)", "every(10); at(0)", "at(0) < at(1)", "open('f')", "[every(1)]", "when('os:sys', 3)",
        "~3j", "every(10)\x00", "at(" * 300 + "0" + ")" * 300, "~" * 3000 + "at(0)", "1" * 5000,
        "every(" * 2000,
    ],
    ids=lambda text: text[:30],
)  # fmt: skip
def test_a_text_that_says_nothing_is_one_clear_error(text: str) -> None:
    with pytest.raises(ScheduleError):
        S.parse(text)


def test_a_misspelt_name_is_answered_with_near_ones() -> None:
    with pytest.raises(ScheduleError, match=r"'evry' is not known. Closest: 'every'"):
        S.parse("evry(10)")


@pytest.mark.parametrize(
    "value",
    [True, 1.5, b"every(3)", [], {}, {"evry": 3}, {"stop": 3}, {"at": [0], "stop": 3}, [True, "x"], object()],
)
def test_a_value_that_says_nothing_is_one_clear_error(value: object) -> None:
    with pytest.raises(ScheduleError):
        S.as_schedule(value)


@given(st.text(alphabet="everyat(0123)|&~- ,=[]'.S\n", max_size=40))
def test_any_text_is_a_schedule_or_a_schedule_error(text: str) -> None:
    try:
        assert isinstance(S.parse(text), Schedule)
    except ScheduleError:
        pass


def test_parsing_imports_nothing() -> None:
    before = set(sys.modules)
    S.parse("when('antigravity:fly')")
    assert set(sys.modules) == before


def test_numbers_of_numpy_are_numbers() -> None:
    assert S.every(np.int64(5)) == S.every(5) and repr(S.at(np.arange(3))) == "at(0, 1, 2)"  # type: ignore[arg-type]
