"""What a bundle holds, in a few numbers: for tables in the terminal."""

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from tl_integrations.storage.reader import Opened, open_all
from tl_integrations.storage.table import Part
from tl_integrations.storage.tlspec import NO_STEP


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
