"""Statistics beside plain float64 arithmetic."""

import math

import pytest
import torch
from torch import Tensor

from tl_integrations.capture.statistics import DEFAULT, Summariser, collect
from tl_integrations.options import SummaryOptions

VALUES: dict[str, Tensor] = {
    "half zeros": torch.randn(1000).relu(),
    "no zeros": torch.randn(31).abs() + 1,
    "all zeros": torch.zeros(7),
    "negative zeros": torch.tensor([-0.0, 0.0, -1.0]),
    "subnormal": torch.tensor([1e-42, 0.0, 1.0]),
    "nan among them": torch.tensor([math.nan, 0.0, 2.0, 0.0]),
    "infinities": torch.tensor([math.inf, -math.inf, 0.0]),
    "huge": torch.tensor([3e38, 3e38, 0.0, 1.0]),
    "half": torch.randn(64).relu().half(),
    "bfloat16": torch.randn(64).relu().bfloat16(),
    "double": torch.randn(64, dtype=torch.float64).relu(),
    "integers": torch.tensor([0, 0, 5, -3]),
    "bools": torch.tensor([True, False, False]),
    "strided": torch.randn(8, 8).relu().t()[::2],
}


@pytest.mark.parametrize("name", list(VALUES))
def test_fractions_count_every_value(name: str) -> None:
    value = VALUES[name]
    (found,) = collect([Summariser(SummaryOptions(statistics=DEFAULT)).measure(value)])
    assert found is not None
    numbers, _ = found
    assert numbers["zero_fraction"] == pytest.approx((value == 0).double().mean().item(), abs=1e-6)
    assert numbers["nonfinite_fraction"] == pytest.approx((~value.isfinite()).double().mean().item())
