"""A graph's log is plain: it goes to JSON and back, and refuses lines that do not make a graph."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tl_integrations.capture.oplog import TENSOR, Code, GraphLog, ModuleLine, OpLine, PlainValue

LOG = GraphLog(
    lines=(
        OpLine(kind="input", type="input", shape=(2, 3), address="x"),
        OpLine(kind="parameter", type="parameter", shape=(4, 3), address="fc.weight", requires_grad=True),
        OpLine(
            type="linear", func_name="linear", reads=(0, 1), call=1, shape=(2, 4), args=(TENSOR, TENSOR, None)
        ),
        OpLine(
            type="mul", func_name="__mul__", reads=(2, 2), shape=(2, 4), seconds=1e-6, file="net.py", line=7
        ),
        OpLine(kind="output", type="output", reads=(3,), shape=(2, 4)),
    ),
    modules=(
        ModuleLine(class_name="Net", outputs=(3,), seconds=0.5),
        ModuleLine(address="fc", class_name="Linear", parent=0, outputs=(2,), aliases=("tied",)),
    ),
)


def through_json(log: GraphLog) -> list[dict[str, Any]]:
    lines: list[dict[str, Any]] = json.loads(json.dumps(log.to_lines(), allow_nan=False))
    return lines


def test_a_log_survives_json() -> None:
    assert GraphLog.from_lines(through_json(LOG)) == LOG


def test_lines_may_come_in_any_order() -> None:
    assert GraphLog.from_lines(reversed(through_json(LOG))) == LOG


def test_unknown_keys_are_ignored() -> None:
    assert GraphLog.from_lines([{**line, "graph": "abc", "new": [1]} for line in through_json(LOG)]) == LOG


def test_fields_at_their_default_are_left_out() -> None:
    assert through_json(LOG)[0] == {
        "kind": "op",
        "index": 0,
        "role": "input",
        "type": "input",
        "shape": [2, 3],
        "address": "x",
    }


def test_graph_id_ignores_time_and_sees_everything_else() -> None:
    slower = GraphLog(lines=tuple(line._replace(seconds=9.0) for line in LOG.lines), modules=LOG.modules)
    wider = GraphLog(lines=(LOG.lines[0]._replace(shape=(5, 3)), *LOG.lines[1:]), modules=LOG.modules)
    assert slower.graph_id == LOG.graph_id != wider.graph_id


plain_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text()
    | st.builds(Code, st.text()),
    lambda inner: st.lists(inner, max_size=3).map(tuple),
    max_leaves=6,
)


@given(st.lists(plain_values, max_size=4).map(tuple), st.dictionaries(st.text(), plain_values, max_size=3))
def test_any_arguments_survive_json(args: tuple[PlainValue, ...], kwargs: dict[str, PlainValue]) -> None:
    log = GraphLog(lines=(OpLine(args=args, kwargs=tuple(kwargs.items())),), modules=(ModuleLine(),))
    assert GraphLog.from_lines(through_json(log)) == log


def test_not_finite_numbers_survive_json() -> None:
    log = GraphLog(lines=(OpLine(args=(float("inf"), float("nan"))),), modules=(ModuleLine(),))
    inf, nan = GraphLog.from_lines(through_json(log)).lines[0].args
    assert inf == float("inf") and nan != nan


@pytest.mark.parametrize(
    "change",
    [
        {"index": 1},
        {"index": 9},
        {"kind": "record"},
        {"role": "spy"},
        {"reads": [7]},
        {"reads": [-1]},
        {"reads": "01"},
        {"call": 5},
        {"shape": ["2"]},
        {"seconds": "fast"},
        {"kwargs": [["a"]]},
        {"args": [{"exec": "x"}]},
        {"inplace": 1},
        {"dtype": "load"},
        {"dtype": "float33"},
    ],
    ids=str,
)
def test_lines_that_make_no_graph_are_refused(change: dict[str, Any]) -> None:
    lines = through_json(LOG)
    lines[2] = {**lines[2], **change}
    with pytest.raises(ValueError, match=r"graph|argument"):
        GraphLog.from_lines(lines)
