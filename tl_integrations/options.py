"""Options of a capture, grouped by the object that needs them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tl_integrations.errors import OptionError

if TYPE_CHECKING:
    import torch

LookbackPayloadPolicy = Literal["metadata_only", "detached_raw", "grad_connected"]


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """How much of a forward is described, beside the payloads that `save` asks for."""

    save_source_context: bool = False
    """Keep the source text of each call; file and line are kept either way."""
    lookback: int = 0
    """How many past ops `followed_by` and `preceded_by` can see."""
    lookback_payload_policy: LookbackPayloadPolicy = "metadata_only"
    """What is held of a past op so that `followed_by` can still save it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryOptions:
    """Which numbers are computed of every captured tensor, on its device."""

    statistics: tuple[str, ...] = ()
    """Names of scalars, such as `"mean"`; `capture.statistics` lists them."""
    histogram_bins: int = 0
    """Bins of a histogram per tensor; 0 makes none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """How captured steps look in loggers."""

    prefix: str = ""
    """Put before every tag, so that two callbacks in one run keep apart."""
    group_by: Literal["statistic", "layer"] = "statistic"
    """What TensorBoard's cards are grouped by: `act_mean/layer` or `layer/act_mean`."""
    max_tags: int = 500
    """Tags beyond this are left out, with one warning that names the selection."""
    layout: bool = True
    """Give TensorBoard's custom scalars page one chart per statistic with all layers."""
    heat_map: bool = False
    """Draw layers by steps, one image per statistic, as the run grows and when it ends."""
    images: tuple[str, ...] = ()
    """Globs of layers whose feature maps are drawn at each captured step; their tensors are kept for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """When a monitor has captured enough."""

    max_captures: int | None = None
    """At least 1; None: no limit."""
    max_bytes: int | None = None
    """Bytes of kept tensors, at least 1; None: no limit."""

    def __post_init__(self) -> None:
        for name in ("max_captures", "max_bytes"):
            limit = getattr(self, name)
            if limit is not None and (isinstance(limit, bool) or not isinstance(limit, int) or limit < 1):
                raise OptionError(f"{name} is {limit!r}. Give a whole number of at least 1, or None.")

    def is_spent(self, captures: int, nbytes: int) -> bool:
        """Whether either limit is reached.

        Args:
            captures: Captured steps so far.
            nbytes: Bytes of the tensors that they kept.
        """
        enough = self.max_captures is not None and captures >= self.max_captures
        return enough or (self.max_bytes is not None and nbytes >= self.max_bytes)


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSpec:
    """How one tensor is kept; a predicate may return it in place of True."""

    save_out: bool = True
    """Keep the tensor; False keeps a record without it."""
    keep_grad: bool = False
    """Keep it on the autograd graph, as a copy that gradients can flow through."""
    dtype: torch.dtype | None = None
    """Cast the kept copy."""
    device: torch.device | str | None = None
    """Move the kept copy."""
