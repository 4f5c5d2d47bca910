"""Statistics over steps, in memory that stays bounded."""

import numpy as np
import torch

from tests.reporting.captures import captured, record
from tl_integrations.capture.events import Moment, Record
from tl_integrations.reporting.series import History, Series


def named(step: int, tensors: dict[str, torch.Tensor] | list[Record]) -> tuple[int, list[tuple[str, Record]]]:
    return step, [(each.layer, each) for each in captured(step, tensors).records]


def test_a_matrix_has_a_row_per_layer_and_a_column_per_step() -> None:
    series = Series()
    for step in (0, 10):
        series.append(*named(step, {"a": torch.full((2,), step + 1.0), "b": torch.zeros(2)}))
    assert series.steps == [0, 10] and list(series.layers) == ["a", "b"]
    assert series.matrix("mean").tolist() == [[1, 11], [0, 0]]


def test_what_a_step_does_not_have_is_nan_and_what_is_not_finite_is_infinite() -> None:
    series = Series()
    series.append(*named(0, {"a": torch.ones(2)}))
    series.append(*named(1, {"b": torch.tensor([torch.nan])}))
    series.append(*named(2, {"a": torch.ones(2), "b": torch.ones(1)}))
    a, b = series.matrix("mean")
    assert np.isnan(a[1]) and a[2] == 1
    assert np.isnan(b[0]) and np.isinf(b[1]) and b[2] == 1
    assert series.latest("b")["mean"] == 1


def test_a_limit_keeps_the_whole_run_in_sight() -> None:
    series = Series(limit=16)
    for step in range(1000):
        series.append(*named(step, {"a": torch.full((1,), float(step))}))
    assert len(series) <= 16 and series.taken == 1000
    assert series.matrix("mean")[0].tolist() == series.steps
    assert series.steps[0] < 150 and series.steps[-1] == 999


def test_a_series_holds_no_tensor() -> None:
    series = Series()
    series.append(*named(0, [record("a", torch.ones(2), payload=object())]))
    assert series.layers["a"].payload is None and series.layers["a"].statistics is None


def test_records_of_a_bundle_become_one_series_per_stage() -> None:
    records = [
        record(layer, torch.full((1,), float(step)), moment=Moment(step=step, stage=stage))
        for stage in ("train", "validate")
        for step in (0, 5)
        for layer in ("a", "b")
    ]
    history = History.of(records)
    assert history.stages == ["train", "validate"]
    assert history.series("validate").matrix("mean").tolist() == [[0, 5], [0, 5]]
    assert len(history.series("test")) == 0


def test_kinds_of_records_keep_apart() -> None:
    history = History()
    history.add(captured(0, [record("a", torch.ones(2)), record("a", torch.zeros(2), io="gradient")]))
    assert history.series().matrix("mean").tolist() == [[1]]
    assert history.series(of="gradient").matrix("mean").tolist() == [[0]]
