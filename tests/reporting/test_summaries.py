"""Tags, keys and budgets, without any writer."""

import math

import pytest
import torch

from tests.reporting.captures import captured, record
from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.statistics import DEFAULT
from tl_integrations.options import ReportOptions
from tl_integrations.reporting.summaries import Summaries, layers

ONE = torch.ones(2, 2)


def summaries(**options: object) -> Summaries:
    return Summaries(DEFAULT, ReportOptions(**options))  # type: ignore[arg-type]


def test_a_tag_groups_by_statistic() -> None:
    assert "act_std/encoder.0" in summaries().metrics(captured(0, {"encoder.0": ONE}))


def test_a_tag_can_group_by_layer_and_carry_a_prefix() -> None:
    metrics = summaries(group_by="layer", prefix="student_").metrics(captured(0, {"encoder.0": ONE}))
    assert "student_encoder.0/act_std" in metrics and "student_capture/time_ms" in metrics


def test_stages_keep_apart() -> None:
    metrics = summaries().metrics(captured(0, {"a": ONE}, stage="validate"))
    assert "validate_act_mean/a" in metrics and "act_mean/a" not in metrics
    assert "capture/validate_time_ms" in metrics


def test_no_record_stands_in_for_another() -> None:
    moments = [
        {"moment": Moment(step=1)},
        {"moment": Moment(step=1), "run_index": 2},
        {"moment": Moment(step=1, microbatch=1), "run_index": 3},
        {"moment": Moment(step=1, call=1), "run_index": 4},
        {"moment": Moment(step=1, dataloader_idx=2), "run_index": 5},
    ]
    step = captured(1, [record("a", ONE, **each) for each in moments])
    names = [name for name, _ in layers(step)]
    assert names == ["a", "a/run_2", "a/microbatch_1", "a/call_1", "a/loader_2"]


def test_the_model_itself_has_a_name() -> None:
    assert "act_mean/(model)" in summaries().metrics(captured(0, {"": ONE}))


def test_gradients_inputs_and_parameters_have_their_own_tags() -> None:
    weight = Record(layer="net.weight", io="parameter", statistics={"grad_norm": 2.0})  # type: ignore[arg-type]
    step = captured(0, [record("a", ONE, io="gradient"), record("a", ONE, io="input"), weight])
    metrics = summaries().metrics(step)
    assert {"grad_mean/a", "act_in_mean/a"} < set(metrics) and metrics["param_grad_norm/net.weight"] == 2


def test_a_row_keeps_the_keys_of_earlier_steps() -> None:
    table = summaries()
    first = table.row(captured(0, {"a": ONE, "b": ONE}))
    second = table.row(captured(1, {"b": ONE}))
    assert list(first) == list(second) and math.isnan(second["act_mean/a"]) and second["act_mean/b"] == 1


def test_the_budget_leaves_tags_out_with_one_warning_that_names_the_selection() -> None:
    table = Summaries(("mean", "std"), ReportOptions(max_tags=4), "blocks.*")
    many = {f"blocks.{index}": ONE for index in range(5)}
    with pytest.warns(UserWarning, match=r"6 of 10 new tags.*save='blocks\.\*'") as caught:
        metrics = table.metrics(captured(0, many))
        table.metrics(captured(1, many))
    assert len(caught) == 1
    assert [key for key in metrics if key.startswith("act")] == [
        "act_mean/blocks.0", "act_std/blocks.0", "act_mean/blocks.1", "act_std/blocks.1",
    ]  # fmt: skip


def test_the_cost_of_the_capture_is_among_the_metrics() -> None:
    metrics = summaries().metrics(captured(0, {"a": ONE}))
    assert metrics["capture/time_ms"] == 250 and metrics["capture/events"] == 7
    assert metrics["capture/bytes"] == 0
