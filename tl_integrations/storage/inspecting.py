"""What a bundle holds, in a few numbers: for tables in the terminal."""

import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Group
from rich.table import Table
from rich.text import Text

from tl_integrations.storage.reader import Opened, open_all
from tl_integrations.storage.table import Part
from tl_integrations.storage.tlspec import NO_STEP

MOST_ROWS = 200
"""Layers that a table shows."""


def printable(text: str) -> str:
    """Text for a terminal: control characters and direction marks are shown, not obeyed."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)


@dataclass(slots=True, kw_only=True)
class LayerSummary:
    """All records of one layer."""

    name: str
    """Address with its pass, or label."""
    func_name: str = ""
    shapes: list[tuple[int, ...]] = field(default_factory=list)
    """Each distinct shape, in the order of appearance."""
    dtype: str = ""
    records: int = 0
    nbytes: int = 0
    gradients: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class BundleSummary:
    """A bundle at a glance."""

    path: Path
    status: str
    reason: str
    created: str
    records: int
    nbytes: int
    """Of tensors, superseded ones left out."""
    steps: tuple[int, ...]
    ranks: tuple[int, ...]
    missing_ranks: tuple[int, ...]
    layers: tuple[LayerSummary, ...]
    has_config: bool
    about: dict[str, Any]
    """The first manifest's own words: producer, provenance, schedule, selector, reductions, counts."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for scripts."""
        return {**asdict(self), "path": str(self.path)}

    def __rich__(self) -> Group:
        table = Table("layer", "made by", "shape", "dtype", "records", "gradients", "MiB")
        for column in table.columns[4:]:
            column.justify = "right"
        for layer in self.layers[:MOST_ROWS]:
            shapes = " ".join("x".join(map(str, shape)) or "scalar" for shape in layer.shapes[:3])
            more = " ..." if len(layer.shapes) > 3 else ""
            numbers = (f"{layer.records}", f"{layer.gradients}", f"{layer.nbytes / 2**20:.2f}")
            row = (layer.name, layer.func_name, shapes + more, layer.dtype, *numbers)
            table.add_row(*(Text(printable(cell)) for cell in row))
        left = len(self.layers) - MOST_ROWS
        return Group(*map(Text, self._head()), table, *([Text(f"... and {left} more")] if left > 0 else []))

    def _head(self) -> list[str]:
        steps = f"{len(self.steps)} steps, {self.steps[0]} to {self.steps[-1]}" if self.steps else "no steps"
        ended = self.status + (f" ({self.reason})" if self.reason else "")
        lines = [
            f"{self.path}: {ended}, written {self.created}",
            f"{self.records} records of {len(self.layers)} layers, {steps}, {self.nbytes / 2**20:.1f} MiB",
        ]
        if self.missing_ranks:
            lines.append(f"missing ranks: {', '.join(map(str, self.missing_ranks))}")
        told = {key: self.about.get(key) for key in ("schedule", "selector", "provenance")}
        lines += [f"{key}: {value}" for key, value in told.items() if value]
        lines.append("config: yes (`recording.config`)" if self.has_config else "config: none")
        return [printable(text) for text in lines]


_ABOUT = ("id", "run_id", "kind", "producer", "provenance", "schedule", "selector", "reductions", "counts")


def summarize(path: str | os.PathLike[str], *, live: bool = False) -> BundleSummary:
    """Read a bundle's index and add up what it holds; no tensor is read.

    Raises:
        BundleError: as `load` does.
    """
    bundles, missing = open_all(Path(path), live=live)
    layers: dict[str, LayerSummary] = {}
    for part, rows in _parts(bundles):
        _add_layers(layers, part, rows)
    steps = _steps(bundles)
    first = bundles[0]
    ended = next((b.outcome for b in bundles if b.outcome.status != "complete"), first.outcome)
    return BundleSummary(
        path=Path(path),
        status=ended.status,
        reason=ended.reason,
        created=str(first.manifest.get("created", "")),
        records=sum(layer.records for layer in layers.values()),
        nbytes=sum(layer.nbytes for layer in layers.values()),
        steps=tuple(steps),
        ranks=tuple(int(b.manifest.get("rank", 0)) for b in bundles),
        missing_ranks=missing,
        layers=tuple(layers.values()),
        has_config=any(b.config is not None for b in bundles),
        about={key: first.manifest[key] for key in _ABOUT if key in first.manifest},
    )


def _parts(bundles: list[Opened]) -> Iterator[tuple[Part, np.ndarray]]:
    for bundle in bundles:
        yield from zip(bundle.parts, bundle.kept)


def _steps(bundles: list[Opened]) -> list[int]:
    pieces = [part.segment.columns["step"][rows] for part, rows in _parts(bundles)]
    found = np.unique(np.concatenate(pieces)) if pieces else np.zeros(0, np.int64)
    return [step for step in found.tolist() if step != NO_STEP]


def _add_layers(layers: dict[str, LayerSummary], part: Part, rows: np.ndarray) -> None:
    columns = part.segment.columns
    sites, nbytes = columns["site"][rows], np.maximum(columns["nbytes"][rows], 0)
    gradients = np.array([row in part.gradients for row in rows.tolist()], bool)
    for code in np.unique(sites).tolist():
        site, here = part.site(code), sites == code
        name = str(site.get("layer") or site.get("address") or site.get("label") or "(root)")
        layer = layers.setdefault(name, LayerSummary(name=name))
        layer.func_name, layer.dtype = (
            str(site.get("func_name", "")),
            str(site["dtype"]).removeprefix("torch."),
        )
        if site["shape"] not in layer.shapes:
            layer.shapes.append(site["shape"])
        layer.records += int(here.sum())
        layer.nbytes += int(nbytes[here].sum())
        layer.gradients += int(gradients[here].sum())
