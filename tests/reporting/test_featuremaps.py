"""Feature maps of any shape and dtype."""

import pytest
import torch
from torch import Tensor

from tl_integrations.reporting.featuremaps import feature_maps
from tl_integrations.reporting.heatmap import colours


@pytest.mark.parametrize(
    ("value", "edge"),
    [
        (torch.randn(2, 40, 28, 28), 4 * 58 + 2),
        (torch.randn(1, 3, 200, 200), 2 * 52 + 2),
        (torch.randn(2, 9, 300), None),
        (torch.randn(4, 10), None),
    ],
)
def test_maps_are_tiled_and_bounded(value: Tensor, edge: int | None) -> None:
    image = feature_maps(value)
    assert image is not None and max(image.shape[:2]) <= 4 * 66 + 2
    assert edge is None or image.shape[1] == edge


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(2, 1, 4, 4, dtype=torch.bfloat16),
        torch.arange(16).reshape(1, 1, 4, 4),
        torch.ones(2, 2).bool(),
        torch.randn(1, 1, 4, 4, dtype=torch.complex64),
        torch.ones(2, 3).to(torch.float8_e4m3fn),
        torch.eye(3).to_sparse(),
        torch.full((1, 1, 2, 2), torch.nan),
        torch.tensor([[torch.inf, 1.0], [3.4e38, -3.4e38]]),
        torch.randn(2, 2, requires_grad=True),
    ],
)
def test_any_dtype_is_drawn(value: Tensor) -> None:
    assert feature_maps(value) is not None


@pytest.mark.parametrize(
    "value", [torch.tensor(1.0), torch.ones(3), torch.ones(0, 4), torch.ones(1, 1, 1, 1, 1)]
)
def test_what_is_no_picture_is_left_out(value: Tensor) -> None:
    assert feature_maps(value) is None


def test_each_map_uses_all_colours() -> None:
    image = feature_maps(
        torch.stack([torch.arange(16.0).reshape(4, 4), torch.arange(16.0).reshape(4, 4) / 1e6])[None]
    )
    assert image is not None
    brightest = (image == colours()[255]).all(axis=-1).sum()
    assert brightest == 2 * 16 * 16
