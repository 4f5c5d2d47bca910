"""Each rule is broken once, and a healthy run breaks none."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from tests.reporting.captures import captured, record
from tl_integrations.capture.events import Record
from tl_integrations.reporting import health
from tl_integrations.reporting.health import RULES, Finding, examine, growth
from tl_integrations.reporting.series import History

torch.manual_seed(0)


def history(*steps: dict[str, Tensor] | list[Record], every: int = 10) -> History:
    found = History()
    for place, tensors in enumerate(steps):
        found.add(captured(place * every, tensors))
    return found


def only(*steps: dict[str, Tensor] | list[Record]) -> Finding:
    (finding,) = examine(history(*steps)).findings
    return finding


def test_a_healthy_network_breaks_no_rule() -> None:
    x, layers = (
        torch.randn(64, 32),
        [nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 10)],
    )
    seen = {}
    for place, layer in enumerate(layers):
        x = layer(x).detach()
        seen[f"net.{place}"] = x
    found = examine(history(seen, seen))
    assert found.healthy and str(found) == "Nothing looks wrong."


def test_the_first_layer_that_is_not_finite_is_named_with_its_step() -> None:
    fine, broken = torch.ones(4) + torch.arange(4), torch.tensor([1.0, math.nan, 2.0, 3.0])
    finding = only({"a": fine, "b": fine, "c": fine}, {"a": fine, "b": broken, "c": broken})
    assert (finding.rule, finding.layer, finding.step, finding.value) == ("nonfinite", "b", 10, 0.25)
    assert "25% of its values at step 10" in finding.words and "step 0, was finite" in finding.words


def test_a_rectifier_that_is_silent_is_dead() -> None:
    value = torch.zeros(100)
    value[0] = 1
    finding = only([record("act", value, func_name="relu")])
    assert finding.rule == "dead" and finding.value == pytest.approx(0.99) and "99.0%" in finding.words
    assert examine(history([record("mask", value, func_name="dropout")])).healthy


def test_dead_units_are_counted_where_they_were_measured() -> None:
    described = Record(
        layer="act", func_name="relu", statistics={"dead_fraction": 0.75, "zero_fraction": 0.9}
    )
    finding = only([described])
    assert finding.value == 0.75 and "75% of the units" in finding.words


@pytest.mark.parametrize(("function", "name"), [(torch.sigmoid, "sigmoid"), (torch.tanh, "Tanh")])
def test_saturation_is_the_mean_slope(function: object, name: str) -> None:
    x = torch.randn(1000, dtype=torch.float64) * 50
    value = function(x)  # type: ignore[operator]
    slope = (value * (1 - value)).mean() * 4 if name == "sigmoid" else (1 - value**2).mean()
    finding = only([record("gate", value, func_name=name)])
    assert finding.rule == "saturated" and finding.value == pytest.approx(slope.item(), abs=1e-6)
    assert examine(history([record("gate", function(x / 50), func_name=name)])).healthy  # type: ignore[operator]


def test_a_layer_that_says_the_same_everywhere_is_constant() -> None:
    assert only({"a": torch.full((8, 8), 3.0)}).rule == "constant"


def test_half_precision_near_its_end_is_named() -> None:
    finding = only([record("a", torch.tensor([6e4, 1.0]), dtype=torch.float16)])
    assert finding.rule == "overflow" and finding.value == pytest.approx(6e4 / 65504)


@pytest.mark.parametrize(("factor", "verb"), [(5.0, "grow"), (0.2, "shrink")])
def test_scale_across_depth(factor: float, verb: str) -> None:
    finding = only({f"l{k}": torch.randn(50) * factor**k for k in range(6)})
    assert finding.rule == "depth" and verb in finding.words
    assert math.log(finding.value) == pytest.approx(5 * math.log(factor), rel=0.2)


def test_the_largest_jump_of_a_layer_is_named_with_both_steps() -> None:
    x = torch.randn(50)
    finding = only({"a": x}, {"a": x * 1.1}, {"a": x * 50}, {"a": x * 60})
    assert (finding.rule, finding.step) == ("drift", 20)
    assert "between steps 10 and 20" in finding.words and finding.value == pytest.approx(50 / 1.1, rel=1e-4)


def test_growth_out_of_the_initial_weights_is_no_drift() -> None:
    x = torch.randn(50)
    assert examine(history({"a": x}, {"a": x * 30}, {"a": x * 60})).healthy


def test_gradients_that_vanish_on_their_way_back() -> None:
    records = [
        record(f"l{k}", torch.randn(50) * (0.1 ** (5 - k) if io == "gradient" else 1), io=io)
        for io in ("output", "gradient")
        for k in range(6)
    ]
    finding = only(records)
    assert finding.rule == "gradient_depth" and "vanish" in finding.words and finding.layer == "l0"


def test_gradients_larger_than_their_activations() -> None:
    x = torch.randn(50)
    finding = only([record("a", x), record("a", x * 3, io="gradient")])
    assert finding.rule == "gradient_ratio" and finding.value == pytest.approx(3, rel=1e-5)


@pytest.mark.parametrize(("ratio", "word"), [(0.5, "far"), (1e-8, "hardly")])
def test_updates_out_of_proportion(ratio: float, word: str) -> None:
    weight = Record(layer="net.weight", io="parameter", statistics={"update_ratio": ratio})  # type: ignore[arg-type]
    finding = only([weight])
    assert finding.rule == "update_ratio" and word in finding.words and finding.layer == "net.weight"


def test_every_finding_says_its_threshold() -> None:
    bad = {f"l{k}": torch.randn(50) * 9.0**k for k in range(6)} | {"nan": torch.tensor([math.nan])}
    findings = examine(history(bad)).findings
    assert {each.rule for each in findings} == {"nonfinite", "depth"}
    assert all(f"threshold {each.threshold:g}" in each.words for each in findings)


def test_rules_are_silent_without_the_statistics_they_need() -> None:
    bare = Record(layer="a", func_name="relu", statistics={"max": 3.0})
    assert examine(history([bare], [bare])).healthy
    assert examine(History()).healthy


def test_every_rule_is_in_the_documented_table() -> None:
    assert all(f"| `{rule.__name__}` |" in (health.__doc__ or "") for rule in RULES)


def test_growth_needs_four_layers() -> None:
    assert growth(np.array([1.0, 10.0, 100.0])) is None
    assert growth(np.array([1.0, 10.0, 100.0, 1000.0])) == pytest.approx(1000)


def test_a_finding_names_the_step_that_its_layer_was_last_captured_in() -> None:
    dead = record("act", torch.zeros(100), func_name="relu")
    fine = record("other", torch.randn(100))
    finding = only([dead, fine], [fine])
    assert finding.layer == "act" and finding.step == 0 and "at step 0" in finding.words
