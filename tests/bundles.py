"""Captured steps made by hand, for tests of what is stored: records over tensors in memory."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tl_integrations.capture.events import Gradient, Moment, Record
from tl_integrations.capture.protocols import CapturedStep, SinkContext
from tl_integrations.storage import to_disk


@dataclass(frozen=True)
class InMemory:
    """A payload that is a tensor."""

    tensor: Tensor

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    def read(self) -> Tensor:
        return self.tensor


def record(
    tensor: Tensor | None, label: str = "relu_1_1", *, grad: Tensor | None = None, **fields: Any
) -> Record:
    fields.setdefault("address", label.rsplit("_", 2)[0])
    if tensor is not None:
        fields.setdefault("shape", tuple(tensor.shape))
        fields.setdefault("dtype", tensor.dtype)
    return Record(
        label=label,
        payload=None if tensor is None else InMemory(tensor),
        gradient=None if grad is None else Gradient(payload=InMemory(grad)),
        **fields,
    )


def step(number: int | None, tensors: Mapping[str, Tensor] | Sequence[Record], **moment: Any) -> CapturedStep:
    """A captured step of records, or of tensors by label."""
    when = Moment(step=number, **moment)
    if isinstance(tensors, Mapping):
        records = [record(tensor, label, moment=when) for label, tensor in tensors.items()]
    else:
        records = list(tensors)
    return CapturedStep(moment=when, records=records)


def values(number: int, count: int = 3) -> dict[str, Tensor]:
    """Tensors that tell their step and position."""
    return {f"relu_{i}_{i}": torch.arange(4.0 + i) + 100 * number + 10 * i for i in range(1, count + 1)}


def bundle(
    path: Path, steps: Sequence[int] = (0, 1, 2), context: SinkContext = SinkContext(), **options: Any
) -> Path:
    """A finished bundle of `values` at each of the steps."""
    with to_disk(path, **options).open(context) as sink:
        for number in steps:
            sink.write(step(number, values(number)))
    return path
