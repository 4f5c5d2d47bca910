"""Feature maps of one sample as a grid of small pictures."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from tl_integrations.reporting.heatmap import PAPER, Image, colours

MOST_MAPS = 16
LONGEST_EDGE = 64


def feature_maps(value: Tensor) -> Image | None:
    """Draw what a layer made of the first sample of a batch.

    Each map is coloured between its own least and greatest finite value; what is not finite is white.

    Args:
        value: Shape `(batch, channels, height, width)`: up to 16 channels, side by side.
            `(batch, rows, columns)`: one map. `(batch, features)`: one map of the whole batch.
            Any dtype; complex as magnitude.

    Returns: Height, width, RGB; None for shapes that are no pictures, or empty.
    """
    maps = _maps(value.detach())
    if maps is None or maps.numel() == 0:
        return None
    drawn = [_coloured(_shrunk(each)) for each in maps]
    return _tiled([_enlarged(each) for each in drawn])


def _maps(value: Tensor) -> Tensor | None:
    """The maps to draw, `(maps, height, width)`, as float on the host."""
    if value.is_sparse:
        value = value.to_dense()
    if value.dim() == 4:
        picked = value[:1, :MOST_MAPS].flatten(0, 1)
    elif value.dim() == 3:
        picked = value[:1]
    elif value.dim() == 2:
        picked = value[None]
    else:
        return None
    return (picked.abs() if picked.is_complex() else picked).to("cpu", torch.float32)


def _shrunk(image: Tensor) -> NDArray[np.float32]:
    """Every k-th row and column, so that no edge is longer than `LONGEST_EDGE`."""
    down, across = (-(-edge // LONGEST_EDGE) for edge in image.shape)
    array: NDArray[np.float32] = image[::down, ::across].numpy()
    return array


def _coloured(image: NDArray[np.float32]) -> Image:
    finite = np.isfinite(image)
    known = image[finite].astype(np.float64)
    low, high = (known.min(), known.max()) if known.size else (0.0, 0.0)
    scaled = np.where(finite, image, low).astype(np.float64) - low
    cells = colours()[(scaled / ((high - low) or 1.0) * 255).astype(np.uint8)]
    cells[~finite] = PAPER
    return cells


def _enlarged(image: Image) -> Image:
    """Small maps drawn with larger pixels, so that a 4 x 4 map can be seen."""
    factor = max(1, LONGEST_EDGE // max(image.shape[:2]))
    return image.repeat(factor, axis=0).repeat(factor, axis=1)


def _tiled(images: list[Image]) -> Image:
    across = math.ceil(math.sqrt(len(images)))
    down = math.ceil(len(images) / across)
    height, width = (edge + 2 for edge in images[0].shape[:2])
    page = np.full((down * height + 2, across * width + 2, 3), PAPER, dtype=np.uint8)
    for place, image in enumerate(images):
        row, column = (place // across) * height + 2, (place % across) * width + 2
        page[row : row + image.shape[0], column : column + image.shape[1]] = image
    return page
