"""The three measures against their definitions, and what holds for them whatever the tensors."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tl_integrations.reporting.similarity import as_comparable, cosine, linear_cka, relative_change


def randn(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def hsic_cka(a: Tensor, b: Tensor) -> float:
    """The definition by centred Gram matrices, in numpy."""
    x, y = (each.reshape(len(each), -1).numpy() for each in (a, b))
    n = len(x)
    h = np.eye(n) - np.ones((n, n)) / n
    k, m = h @ x @ x.T @ h, h @ y @ y.T @ h
    return float((k * m).sum() / math.sqrt((k * k).sum() * (m * m).sum()))


@given(st.integers(2, 20), st.integers(1, 30), st.integers(1, 30), st.integers(0, 9))
def test_cka_equals_its_definition(samples: int, p: int, q: int, seed: int) -> None:
    a, b = randn(samples, p, seed=seed), randn(samples, q, seed=seed + 100)
    assert linear_cka(a, b) == pytest.approx(hsic_cka(a, b), rel=1e-9)


@pytest.mark.parametrize("samples", [5, 200])
def test_cka_ignores_rotation_and_scale(samples: int) -> None:
    a = randn(samples, 16)
    rotation = torch.linalg.qr(randn(16, 16, seed=3))[0]
    assert linear_cka(a, a @ rotation * 7) == pytest.approx(1)
    assert linear_cka(a, randn(samples, 16, seed=5)) < 0.9


def test_cka_is_not_defined_for_one_sample_or_equal_ones() -> None:
    assert math.isnan(linear_cka(randn(1, 4), randn(1, 4)))
    assert math.isnan(linear_cka(torch.ones(5, 4).double(), randn(5, 4)))
    assert math.isnan(linear_cka(randn(4), torch.tensor(1.0).double()))
    assert math.isnan(linear_cka(randn(4, 2), randn(5, 2)))


def test_relative_change_is_the_distance_in_units_of_the_first() -> None:
    a = randn(3, 4)
    assert relative_change(a, a) == 0
    assert relative_change(a, 3 * a) == pytest.approx(2)
    assert relative_change(torch.zeros(2), torch.ones(2)) == math.inf
    assert relative_change(torch.zeros(2), torch.zeros(2)) == 0
    broken = torch.tensor([1.0, math.nan])
    assert relative_change(broken, broken) == 0 and math.isnan(relative_change(broken, torch.ones(2)))


def test_cosine_is_the_angle() -> None:
    a = randn(3, 4)
    assert cosine(a, 5 * a) == pytest.approx(1) and cosine(a, -a) == pytest.approx(-1)
    assert cosine(torch.tensor([1.0, 0.0]), torch.tensor([0.0, 1.0])) == 0
    assert math.isnan(cosine(torch.zeros(2), torch.ones(2)))


@pytest.mark.parametrize(
    "value",
    [
        torch.arange(6).reshape(2, 3),
        torch.tensor([[True, False]]),
        torch.randn(2, 3).bfloat16(),
        torch.randn(2, 3).to(torch.float8_e4m3fn),
        torch.randn(2, 3, dtype=torch.complex64),
        torch.randn(2, 3, dtype=torch.complex64).conj(),
        torch.eye(3).to_sparse(),
        torch.randn(2, 3, requires_grad=True),
        torch.zeros(0, 3),
    ],
    ids=lambda value: str(value.dtype),
)
def test_any_tensor_can_be_compared_with_itself(value: Tensor) -> None:
    comparable = as_comparable(value)
    assert comparable.dtype == torch.float64 and not comparable.requires_grad
    assert relative_change(comparable, comparable) == 0


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_quantized_tensors_are_compared_by_what_they_stand_for() -> None:
    value = torch.quantize_per_tensor(torch.tensor([[0.1, 0.2]]), 0.1, 0, torch.qint8)
    assert torch.allclose(as_comparable(value), torch.tensor([[0.1, 0.2]], dtype=torch.float64), atol=1e-6)
