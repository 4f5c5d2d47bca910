"""Dead units of a layer, and statistics of records after the fact."""

import pytest
import torch
from torch import Tensor

from tests.reporting.captures import Kept
from tl_integrations.capture.events import Moment, Record
from tl_integrations.options import SummaryOptions
from tl_integrations.reporting.measuring import measured
from tl_integrations.reporting.terminal import report_of
from tl_integrations.reporting.units import dead_fraction


def test_a_channel_is_dead_when_it_is_zero_at_every_place_of_every_sample() -> None:
    maps = torch.ones(2, 4, 3, 3)
    maps[:, 0] = 0
    maps[0, 1] = 0
    assert dead_fraction(maps) == {"dead_fraction": 0.25}


def test_a_feature_is_dead_when_it_is_zero_for_every_token() -> None:
    tokens = torch.ones(2, 5, 10)
    tokens[..., 3:5] = 0
    assert dead_fraction(tokens)["dead_fraction"] == pytest.approx(0.2)


@pytest.mark.parametrize(
    "value", [torch.zeros(8), torch.zeros(7, 3), torch.zeros(0, 3), torch.eye(9).to_sparse()]
)
def test_nothing_is_said_where_chance_or_shape_forbid(value: Tensor) -> None:
    assert dead_fraction(value) == {}


def test_records_are_measured_from_the_tensors_that_they_kept() -> None:
    bare = Record(layer="a", statistics={"mean": 3.0})
    kept = Record(layer="b", payload=Kept(torch.tensor([1.0, 3.0])), statistics={"mean": 77.0})
    options = SummaryOptions(statistics=("mean", "absmax"), histogram_bins=4)
    one, two = measured([bare, kept], options)
    assert one is bare and two.statistics == {"mean": 2, "absmax": 3}
    assert two.histogram is not None and two.histogram.num == 2
    assert measured([kept], options, only_missing=True) == [kept]


def test_a_report_of_records_without_statistics_measures_them() -> None:
    records = [
        Record(layer="act", func_name="relu", moment=Moment(step=step), payload=Kept(torch.zeros(16, 4)))
        for step in (0, 5)
    ]
    (finding,) = report_of(records).health.findings
    assert finding.rule == "dead" and finding.value == 1 and finding.step == 5
