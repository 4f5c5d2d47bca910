"""The pictures of RESULTS.md, drawn from its rows."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from results import Results, Row

OURS = ("#1b9e77", "#4c78a8", "#66c2a5", "#2e5f8a", "#a6d854")
THEIRS = ("#f2a33a", "#d95f02", "#e7298a", "#7570b3", "#8c564b", "#c9a227")
PLAIN = "#6e6e6e"
PEERS = ("hooks", "fx", "captum", "nnsight", "torchlens", "safetensors", "torch.save", "hand-written")
"""What names a way that is not ours, which is drawn in warm colours."""
BASES = ("plain", "os.write")
"""Ways that are drawn grey: what the others are measured against."""

Paint = Callable[[Axes, "Picture", Sequence[Row]], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    """Which rows a picture shows and how."""

    title: str
    table: str
    """How the table's title begins."""
    paint: Paint
    axis: str
    scale: float | None = None
    """What to divide times by; None for a picture of ratios."""
    leave_out: Sequence[str] = ()
    """Ways that are not drawn."""
    logarithmic: bool = False
    height: float = 4.2

    def height_of(self, row: Row) -> float:
        found = row.ratio if self.scale is None else row.value
        assert found is not None, f"{row.case}, {row.way} has nothing to draw"
        return found / (self.scale or 1.0)


def bars(axes: Axes, picture: Picture, rows: Sequence[Row]) -> None:
    """Cases side by side, a bar for each way, from 1 upward where ratios are drawn."""
    cases, ways = _names(rows)
    width = 0.84 / len(ways)
    for (way, colour), k in zip(_coloured(ways).items(), range(len(ways)), strict=True):
        own = [row for row in rows if row.way == way]
        places = [cases.index(row.case) + (k - (len(ways) - 1) / 2) * width for row in own]
        heights = [picture.height_of(row) for row in own]
        drawn = axes.bar(places, heights, width, label=way, color=colour)
        axes.bar_label(drawn, [_short(height) for height in heights], fontsize=6, padding=1, rotation=90)
    axes.set_xticks(range(len(cases)), cases)
    axes.margins(y=0.12)
    if picture.scale is None:
        axes.axhline(1.0, color="black", linewidth=0.8)
    if picture.logarithmic:
        axes.set_yscale("log")
    axes.set_ylabel(picture.axis)
    _legend(axes)


def bars_across(axes: Axes, picture: Picture, rows: Sequence[Row]) -> None:
    """A bar to the right for each way, case under case, ours in its own colour."""
    cases, _ = _names(rows)
    place, places, names = 0.0, [], []
    for case in cases:
        axes.text(
            0.0, place - 0.75, f" {case}", transform=axes.get_yaxis_transform(), fontweight="bold", fontsize=8
        )
        for row in (row for row in rows if row.case == case):
            height = picture.height_of(row)
            axes.barh(place, height, 0.8, color=OURS[0] if row.way.startswith("ours") else THEIRS[0])
            axes.text(height, place, f" {_short(height)}", va="center", fontsize=7)
            places.append(place)
            names.append(row.way)
            place += 1.0
        place += 1.1
    axes.set_yticks(places, names, fontsize=8)
    axes.invert_yaxis()
    axes.set_xscale("log")
    axes.margins(x=0.1)
    axes.set_xlabel(picture.axis)


def lines(axes: Axes, picture: Picture, rows: Sequence[Row]) -> None:
    """A line for each way over the number of ops, both axes logarithmic."""
    _, ways = _names(rows)
    for way, colour in _coloured(ways).items():
        own = [row for row in rows if row.way == way]
        sizes = [int(row.case.split()[0].replace(",", "")) for row in own]
        axes.plot(sizes, [picture.height_of(row) for row in own], marker="o", label=way, color=colour)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlabel("ops in the model")
    axes.set_ylabel(picture.axis)
    axes.grid(alpha=0.3)
    _legend(axes)


PICTURES: Mapping[str, Picture] = {
    "capture": Picture(
        title="Keeping the same tensors, by model",
        table="Other",
        paint=bars,
        axis="times the plain forward",
        leave_out=("plain",),
        logarithmic=True,
    ),
    "scaling": Picture(
        title="Time of one op as a model grows, every second output kept",
        table="Every",
        paint=lines,
        axis="microseconds per op",
        scale=1e-6,
    ),
    "training-loop": Picture(
        title="CPU time of a training step with a callback",
        table="CPU time of a training",
        paint=bars,
        axis="times a step without callback",
        leave_out=("no callback",),
    ),
    "config": Picture(
        title="A config of 501 objects",
        table="501",
        paint=bars_across,
        axis="milliseconds",
        scale=1e-3,
        height=5.4,
    ),
    "storage": Picture(
        title="Writing 33 MB of tensors",
        table="33 MB of tensors by",
        paint=bars,
        axis="milliseconds",
        scale=1e-3,
    ),
}


def draw(found: Results, folder: Path) -> list[Path]:
    """Every picture whose rows there are, each well below 80 kB."""
    folder.mkdir(exist_ok=True)
    drawn = []
    for name, picture in PICTURES.items():
        rows = [row for row in found.of(name) if _is_shown(row, picture)]
        if not rows:
            continue
        figure = Figure(figsize=(8, picture.height), dpi=100, layout="constrained")
        axes = figure.add_subplot()
        picture.paint(axes, picture, rows)
        axes.set_title(picture.title, loc="left", fontsize=11, fontweight="bold")
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        path = folder / f"{name}.png"
        figure.savefig(path, metadata={"Software": None})
        drawn.append(path)
    return drawn


def _is_shown(row: Row, picture: Picture) -> bool:
    return row.table.startswith(picture.table) and row.way not in picture.leave_out and not row.failure


def _names(rows: Sequence[Row]) -> tuple[list[str], list[str]]:
    return list(dict.fromkeys(row.case for row in rows)), list(dict.fromkeys(row.way for row in rows))


def _coloured(ways: Sequence[str]) -> dict[str, str]:
    """Grey for what is measured against, cold for ours, warm for the others."""
    ours, theirs = cycle(OURS), cycle(THEIRS)
    found = {}
    for way in ways:
        is_theirs = any(name in way for name in PEERS)
        found[way] = PLAIN if way in BASES else next(theirs) if is_theirs else next(ours)
    return found


def _short(value: float) -> str:
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def _legend(axes: Axes) -> None:
    axes.legend(fontsize=7, frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
