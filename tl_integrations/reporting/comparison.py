"""What a comparison found, as a table, a picture, pandas or plain data."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from rich.console import Console, ConsoleOptions, RenderResult
from rich.table import Table

from tl_integrations.errors import RecordLookupError
from tl_integrations.reporting.heatmap import Image, heat_map
from tl_integrations.reporting.printing import shown
from tl_integrations.reporting.tensorboard import write_image

if TYPE_CHECKING:
    from pandas import DataFrame

MEASURES = ("change", "cosine", "cka")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """How one layer differs."""

    layer: str
    step: int | None
    """Step in the first of the two; None for checkpoints."""
    other_step: int | None
    """Step in the second."""
    stage: str = "train"
    """Stage in the first; empty for checkpoints."""
    shape: tuple[int, ...]
    other_shape: tuple[int, ...]
    change: float
    """`norm(b - a) / norm(a)`; NaN where shapes differ."""
    cosine: float
    """Between -1 and 1; NaN where shapes differ."""
    cka: float
    """Linear CKA over the first dimension, between 0 and 1; NaN where it is not defined."""


class Comparison:
    """What `compare` found: prints as a table, draws as a picture, converts to pandas.

    Args:
        differences: One per layer and pair of steps, in the order of capture.
        only_first: Layers that only the first has.
        only_second: Layers that only the second has.
    """

    def __init__(
        self, differences: Sequence[Difference], only_first: Sequence[str], only_second: Sequence[str]
    ) -> None:
        self.differences: tuple[Difference, ...] = tuple(differences)
        self.only_first: tuple[str, ...] = tuple(only_first)
        self.only_second: tuple[str, ...] = tuple(only_second)

    def __len__(self) -> int:
        return len(self.differences)

    def __iter__(self) -> Iterator[Difference]:
        return iter(self.differences)

    def __getitem__(self, layer: str) -> Difference:
        """The difference of one layer; at the newest step where there are several.

        Raises:
            RecordLookupError: if the layer is not in both.
        """
        found = [each for each in self.differences if each.layer == layer]
        if not found:
            raise RecordLookupError(f"No layer {layer!r} in both. There are: {', '.join(self.layers[:10])}.")
        return found[-1]

    @property
    def layers(self) -> list[str]:
        """Layers that both have, each once."""
        return list(dict.fromkeys(each.layer for each in self.differences))

    @property
    def identical(self) -> bool:
        """Whether both hold the same layers with the same values."""
        nothing_alone = not self.only_first and not self.only_second
        return nothing_alone and all(each.change == 0 for each in self.differences)

    def image(self, measure: str = "change") -> Image:
        """Layers by steps as a heat map of `change`, `cosine` or `cka`: height, width, RGB."""
        if measure not in MEASURES:
            raise ValueError(f"measure={measure!r} is not compared. Use one of {', '.join(MEASURES)}.")
        names = self.layers
        pairs = list(dict.fromkeys((each.step or 0, each.other_step or 0) for each in self.differences))
        values = np.full((len(names), len(pairs)), np.nan)
        rows = {name: place for place, name in enumerate(names)}
        columns = {pair: place for place, pair in enumerate(pairs)}
        for each in self.differences:
            values[rows[each.layer], columns[each.step or 0, each.other_step or 0]] = getattr(each, measure)
        return heat_map(values, names, [other for _, other in pairs], measure)

    def to_tensorboard(self, writer: object, prefix: str = "compare") -> None:
        """Write the three pictures to a `SummaryWriter`, at the newest step."""
        step = max((each.other_step or 0 for each in self.differences), default=0)
        for measure in MEASURES:
            write_image(writer, f"{prefix}/{measure}", self.image(measure), step)

    def to_pandas(self) -> "DataFrame":
        """One row per layer and pair of steps."""
        from pandas import DataFrame

        return DataFrame(self._rows())

    def to_dict(self) -> dict[str, Any]:
        """Plain data that JSON can hold; numbers that are not finite are None."""
        rows = [{key: _plain(value) for key, value in row.items()} for row in self._rows()]
        return {
            "identical": self.identical,
            "differences": rows,
            "only_first": list(self.only_first),
            "only_second": list(self.only_second),
        }

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        table = Table(header_style="bold")
        stepped = any(each.step is not None or each.other_step is not None for each in self.differences)
        for heading in ("layer", "steps", "shape") if stepped else ("layer", "shape"):
            table.add_column(heading, overflow="fold")
        for heading in MEASURES:
            table.add_column(heading, justify="right", no_wrap=True)
        for each in self.differences:
            numbers = (_number(getattr(each, measure)) for measure in MEASURES)
            steps = [_pair(each.step, each.other_step)] if stepped else []
            table.add_row(shown(each.layer), *steps, _shapes(each), *numbers)
        yield table
        for words, names in (("first", self.only_first), ("second", self.only_second)):
            if names:
                yield shown(f"Only in the {words}: {', '.join(names)}")

    def __str__(self) -> str:
        console = Console(width=120, color_system=None, legacy_windows=False)
        with console.capture() as capture:
            console.print(self)
        return capture.get()

    def __repr__(self) -> str:
        return f"<Comparison of {len(self.layers)} layers{', identical' * self.identical}>"

    def _rows(self) -> list[dict[str, Any]]:
        return [asdict(each) for each in self.differences]


def _number(value: float) -> str:
    return "-" if math.isnan(value) else f"{value:.4g}"


def _pair(step: int | None, other: int | None) -> str:
    if step is None and other is None:
        return ""
    return str(step) if step == other else f"{step} -> {other}"


def _shapes(each: Difference) -> str:
    shape, other = ("x".join(map(str, each_shape)) for each_shape in (each.shape, each.other_shape))
    return shape if shape == other else f"{shape} -> {other}"


def _plain(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
