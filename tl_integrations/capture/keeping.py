"""How a recorder keeps what its selector takes."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

from tl_integrations.capture.selector import Selector
from tl_integrations.capture.statistics import Summariser
from tl_integrations.options import CaptureSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Keeping:
    """What becomes of a tensor that is taken."""

    payloads: bool = True
    aliases: bool = True
    gradients: bool = False
    gradients_of: Selector | None = None
    """Which kept tensors have their gradient kept; None: all."""
    summariser: Summariser | None = None
    default: bool | CaptureSpec = False
    """What holds where a predicate has no opinion."""
    plain: CaptureSpec | None = None
    """How a tensor is kept that a plain True takes; None: as it is."""
    transform: Callable[[Tensor], Tensor] | None = None
