"""The picture that shows a whole run: layers downwards, steps to the right, a statistic as colour."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from tl_integrations.reporting.glyphs import HEIGHT, WIDTH, write

Image = NDArray[np.uint8]
"""Height, width, RGB."""

PAPER, INK, ABSENT, BROKEN = (255, 255, 255), (40, 40, 40), (226, 226, 226), (220, 30, 60)
LONGEST_NAME = 36
"""Characters of a layer name; longer ones lose their middle."""
_ANCHORS = np.array(
    [(48, 18, 90), (54, 75, 140), (30, 130, 140), (60, 175, 110), (155, 210, 60), (250, 230, 40)], dtype=float
)
"""Dark to bright, also in grey and to the colour-blind."""


def colours() -> Image:
    """256 colours from low to high."""
    places = np.linspace(0, len(_ANCHORS) - 1, 256)
    channels = [np.interp(places, np.arange(len(_ANCHORS)), _ANCHORS[:, channel]) for channel in range(3)]
    return np.stack(channels, axis=1).astype(np.uint8)


def heat_map(
    values: NDArray[np.floating], names: Sequence[str], steps: Sequence[int], title: str = ""
) -> Image:
    """Draw a statistic of all layers over all steps.

    Positive values that span more than a factor of 50 are coloured by their logarithm; the bar says so.

    Args:
        values: Shape `(layers, steps)`. NaN: not captured, grey. Infinite: not finite, red.
        names: One per layer; as many are written as fit.
        steps: One per column; columns beyond 1000 are sampled.
        title: Written on top.

    Returns: An image of at most some 1000 pixels in both directions, whatever the number of layers and steps;
        few steps make one that a card of TensorBoard shows pixel by pixel.
    """
    columns = np.unique(np.linspace(0, len(steps) - 1, min(len(steps), 1000)).astype(int))
    cells, (low, high), logarithmic = _coloured(np.asarray(values, dtype=np.float64)[:, columns])
    tall = int(np.clip(900 // max(len(names), 1), 2, 20))
    wide = int(np.clip(240 // max(len(columns), 1), 1, 20))
    body = cells.repeat(tall, axis=0).repeat(wide, axis=1)
    shown = [_shortened(name) for name in names]
    left = WIDTH * max(map(len, shown), default=0) + 10
    top = HEIGHT + 10
    height, width = body.shape[:2]
    page = np.full(
        (max(height, 60) + top + HEIGHT + 10, left + max(width, 60) + 80, 3), PAPER, dtype=np.uint8
    )
    page[top : top + height, left : left + width] = body
    _stamp(page, 2, left, title + "  (log colours)" * logarithmic)
    _name_rows(page, shown, tall, left, top)
    _name_columns(page, [steps[column] for column in columns], wide, left, top + height + 4)
    _bar(page, low, high, left + max(width, 60) + 10, top, max(height, 60))
    return page


def _coloured(values: NDArray[np.float64]) -> tuple[Image, tuple[float, float], bool]:
    """Cells as colours, the range of finite values, and whether colours are logarithmic."""
    finite = np.isfinite(values)
    known = values[finite]
    low, high = (float(known.min()), float(known.max())) if known.size else (0.0, 0.0)
    logarithmic = low > 0 and high / low > 50
    bottom, span = (np.log(low), np.log(high / low)) if logarithmic else (low, high - low)
    with np.errstate(all="ignore"):
        scaled = (np.log(values) if logarithmic else values) - bottom
        places = np.clip(np.nan_to_num(scaled / (span or 1.0)) * 255, 0, 255).astype(np.uint8)
    cells = colours()[places]
    cells[np.isnan(values)] = ABSENT
    cells[np.isinf(values)] = BROKEN
    return cells, (low, high), logarithmic


def _shortened(name: str) -> str:
    if len(name) <= LONGEST_NAME:
        return name
    half = (LONGEST_NAME - 2) // 2
    return f"{name[:half]}..{name[-half:]}"


def _stamp(page: Image, row: int, column: int, text: str) -> None:
    """Write a text; what does not fit on the page is cut off."""
    ink = write(text)[: max(page.shape[0] - row, 0), : max(page.shape[1] - column, 0)]
    page[row : row + ink.shape[0], column : column + ink.shape[1]][ink] = INK


def _name_rows(page: Image, names: Sequence[str], tall: int, left: int, top: int) -> None:
    stride = -(-(HEIGHT + 1) // tall)
    for place in range(0, len(names), stride):
        row = top + place * tall + (tall - HEIGHT) // 2
        _stamp(page, max(row, 0), left - WIDTH * len(names[place]) - 5, names[place])


def _name_columns(page: Image, steps: Sequence[int], wide: int, left: int, row: int) -> None:
    """Write as many steps below their columns as stand apart."""
    free = 0
    for place, step in enumerate(steps):
        column = left + place * wide
        if column >= free:
            _stamp(page, row, column, str(step))
            free = column + WIDTH * (len(str(step)) + 3)


def _bar(page: Image, low: float, high: float, left: int, top: int, height: int) -> None:
    places = np.linspace(255, 0, height).astype(np.uint8)
    page[top : top + height, left : left + 10] = colours()[places][:, None]
    _stamp(page, top, left + 14, f"{high:.3g}")
    _stamp(page, top + height - HEIGHT, left + 14, f"{low:.3g}")
