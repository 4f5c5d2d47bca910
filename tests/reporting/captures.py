"""Captured steps made by hand, and boards read back."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from torch import Tensor

from tl_integrations.capture.events import Histogram, Moment, Record
from tl_integrations.capture.protocols import CapturedStep


class Kept:
    """A payload in memory."""

    def __init__(self, value: Tensor) -> None:
        self.value = value
        self.nbytes = value.nbytes

    def read(self) -> Tensor:
        return self.value


def record(layer: str, value: Tensor, *, bins: int = 8, **fields: Any) -> Record:
    """A record whose statistics come from numpy-like arithmetic that is not the product's."""
    finite = value.double().flatten()
    finite = finite[finite.isfinite()]
    statistics = {
        "mean": value.double().mean().item() if value.numel() else float("nan"),
        "std": value.double().std(correction=0).item() if value.numel() else float("nan"),
        "absmax": finite.abs().max().item() if finite.numel() else float("nan"),
        "zero_fraction": (value == 0).double().mean().item(),
        "nonfinite_fraction": (~value.isfinite()).double().mean().item(),
    }
    fields = {"layer": layer, "address": layer, "shape": tuple(value.shape), **fields}
    return Record(statistics=statistics, histogram=histogram(finite, bins), **fields)


def histogram(finite: Tensor, bins: int = 8) -> Histogram:
    """Counts of finite values in equal bins."""
    low = finite.min().item() if finite.numel() else 0.0
    high = finite.max().item() if finite.numel() else 0.0
    counts, edges = torch.histogram(finite, bins, range=(low, high if high > low else low + 1))
    return Histogram(
        edges=tuple(edges.tolist()),
        counts=tuple(int(count) for count in counts.tolist()),
        minimum=low,
        maximum=high,
        total=finite.sum().item(),
        squares=(finite**2).sum().item(),
    )


def captured(step: int, tensors: Mapping[str, Tensor] | Sequence[Record], **moment: Any) -> CapturedStep:
    """One captured step of named tensors, or of records as they are."""
    when = Moment(step=step, **moment)
    if isinstance(tensors, Mapping):
        tensors = [record(layer, value, moment=when) for layer, value in tensors.items()]
    return CapturedStep(moment=when, records=tuple(tensors), seconds=0.25, event_count=7)


def board(folder: Path) -> EventAccumulator:
    """All that a folder's event files hold, nothing sampled away."""
    everything = {"scalars": 0, "histograms": 0, "images": 0, "tensors": 0}
    accumulator = EventAccumulator(str(folder), size_guidance=everything)
    accumulator.Reload()
    return accumulator


def scalars(accumulator: EventAccumulator, tag: str) -> dict[int, float]:
    return {event.step: event.value for event in accumulator.Scalars(tag)}


def text(accumulator: EventAccumulator, tag: str) -> str:
    return "\n".join(
        event.tensor_proto.string_val[0].decode() for event in accumulator.Tensors(f"{tag}/text_summary")
    )
