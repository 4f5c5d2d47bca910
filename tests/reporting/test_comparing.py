"""Two steps, two runs and two checkpoints, layer by layer."""

import json
import math
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.tensorboard import SummaryWriter

from tests.reporting.captures import board
from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.record_tables import MemoryTable
from tl_integrations.capture.recording import Recording
from tl_integrations.errors import PayloadUnavailableError, RecordLookupError
from tl_integrations.reporting.comparing import compare


class Kept:
    """A payload that counts how often it is read."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.nbytes = value.nbytes
        self.reads = 0

    def read(self) -> Tensor:
        self.reads += 1
        return self.value


def run(steps: dict[int, dict[str, Tensor]]) -> Recording:
    return Recording(
        MemoryTable(
            Record(
                layer=name,
                address=name,
                moment=Moment(step=step),
                shape=tuple(value.shape),
                payload=Kept(value),
            )
            for step, tensors in steps.items()
            for name, value in tensors.items()
        )
    )


A, B = torch.randn(8, 4), torch.randn(8, 6)


def test_two_steps_of_a_run_are_compared_whatever_their_numbers() -> None:
    both = run({0: {"a": A, "b": B}, 50: {"a": A, "b": 2 * B}})
    found = compare(both.at(0), both.at(50))
    assert found["a"].change == 0 and found["b"].change == pytest.approx(1)
    assert found["b"].cosine == pytest.approx(1) and found["b"].cka == pytest.approx(1)
    assert (found["b"].step, found["b"].other_step) == (0, 50) and not found.identical


def test_two_runs_are_compared_at_their_common_steps() -> None:
    found = compare(run({0: {"a": A}, 10: {"a": A}, 20: {"a": A}}), run({10: {"a": -A}, 20: {"a": A}}))
    assert [(each.step, each.cosine) for each in found] == [(10, pytest.approx(-1)), (20, pytest.approx(1))]


def test_checkpoints_are_compared_by_parameter() -> None:
    torch.manual_seed(0)
    one, two = nn.Linear(3, 2), nn.Linear(3, 2)
    found = compare(
        {"state_dict": one.state_dict(), "epoch": 3}, {"state_dict": two.state_dict(), "epoch": 4}
    )
    expected = (two.weight - one.weight).norm() / one.weight.norm()
    assert found["weight"].change == pytest.approx(expected.item(), rel=1e-6)
    assert compare(one.state_dict(), one.state_dict()).identical
    assert "steps" not in str(found)


def test_layers_that_are_in_one_only_are_listed() -> None:
    found = compare(run({0: {"a": A, "b": B}}), run({0: {"a": A, "c": B}}))
    assert found.layers == ["a"] and found.only_first == ("b",) and found.only_second == ("c",)
    assert not found.identical and "Only in the second: c" in str(found)


def test_layers_of_other_widths_still_have_a_cka() -> None:
    found = compare(run({0: {"a": A}}), run({0: {"a": B}}))["a"]
    assert math.isnan(found.change) and math.isnan(found.cosine) and 0 < found.cka < 1
    assert found.shape == (8, 4) and found.other_shape == (8, 6)


@pytest.mark.parametrize(
    ("one", "two", "says"),
    [
        ({0: {"a": A}, 1: {"a": A}}, {2: {"a": A}, 3: {"a": A}}, "No step is in both"),
        ({0: {"a": A}}, {0: {"b": A}}, "No layer is in both"),
        ({}, {0: {"b": A}}, "none in the first"),
    ],
)
def test_nothing_in_common_is_an_error_that_lists_what_there_is(one: dict, two: dict, says: str) -> None:
    with pytest.raises(RecordLookupError, match=says):
        compare(run(one), run(two))


def test_tensors_that_were_not_kept_are_an_error() -> None:
    bare = Recording(MemoryTable([Record(layer="a", address="a", moment=Moment(step=0))]))
    with pytest.raises(PayloadUnavailableError, match="'a'"):
        compare(bare, bare)


def test_a_layer_that_is_not_in_both_cannot_be_looked_up() -> None:
    with pytest.raises(RecordLookupError, match="'z'"):
        compare(run({0: {"a": A}}), run({0: {"a": A}}))["z"]


def test_each_tensor_is_read_once_and_only_where_it_is_compared() -> None:
    one, two = run({0: {"a": A, "b": B}}), run({0: {"a": A}})
    compare(one, two)
    assert [record.payload.reads for record in one] == [1, 0]  # type: ignore[union-attr]


def test_a_comparison_is_a_table_plain_data_pandas_and_pictures(tmp_path: Path) -> None:
    found = compare(run({0: {"a": A}, 9: {"a": A}}), run({0: {"a": torch.zeros(8, 4)}, 9: {"a": B}}))
    assert "-> 8x6" in str(found) and "0" in str(found)
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))
    assert plain["differences"][0]["cosine"] is None and plain["differences"][0]["change"] == 1
    frame = found.to_pandas()
    assert list(frame["step"]) == [0, 9] and frame["change"][0] == 1
    with SummaryWriter(tmp_path) as writer:
        found.to_tensorboard(writer)
    read = board(tmp_path)
    assert sorted(read.Tags()["images"]) == ["compare/change", "compare/cka", "compare/cosine"]
    assert read.Images("compare/cka")[0].step == 9
    with pytest.raises(ValueError, match="'angle'"):
        found.image("angle")


def test_progress_can_be_followed() -> None:
    seen: list[object] = []

    def track(items: list) -> list:
        seen.extend(items)
        return items

    compare(run({0: {"a": A, "b": B}}), run({0: {"a": A, "b": B}}), track=track)
    assert len(seen) == 2
