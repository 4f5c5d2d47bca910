"""One kept tensor on its way from a source to a record."""

from typing import Literal

import torch
from torch import Tensor

from tl_integrations.capture.decision_table import Entry
from tl_integrations.capture.events import Event, Kind
from tl_integrations.capture.gradients import GradientTap
from tl_integrations.capture.payloads import KeptTensor
from tl_integrations.capture.statistics import Measured, Numbers

Held = tuple[Tensor, int | None, int, Entry | str, int, bool, int | None]
"""A kept tensor that nothing was done with yet: detached, its version (None: it is a copy), module call,
function (or class of the module that returned it), k-th of its type, whether it required gradients, line of
the graph."""


class Catch:
    """One kept tensor before it becomes a record.

    A plain class, positional and without conversions: one is made for each kept tensor while the model waits.
    """

    payload: KeptTensor | None = None
    measured: Measured | None = None
    numbers: Numbers | None = None
    """What was measured, once it was fetched."""
    gradient: GradientTap | None = None
    placement = ""
    """How a distributed tensor lies over its mesh."""

    def __init__(
        self,
        out: Tensor,
        call: int,
        kind: Kind,
        func_name: str,
        type_name: str = "",
        count: int = 0,
        path: str = "",
        index: int = 0,
        io: Literal["input", "output"] = "output",
        line: int | None = None,
        event: Event | None = None,
    ) -> None:
        self.call = call
        """Module call it happened in."""
        self.kind = kind
        self.func_name = func_name
        self.type_name = type_name
        self.count = count
        """k-th of its type in the run; 0 where that is not known."""
        self.path = path
        self.index = index
        self.io = io
        self.line = line
        self.event = event
        """What the selector saw, where it must be asked again with the final label."""
        self.shape: torch.Size = out.shape
        self.dtype: torch.dtype = out.dtype
        self.device: torch.device = out.device
        self.requires_grad: bool = out.requires_grad

    @property
    def short_label(self) -> str | None:
        """Such as `relu_1`."""
        return f"{self.type_name}_{self.count}" if self.count else None
