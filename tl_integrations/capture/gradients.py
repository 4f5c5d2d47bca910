"""Gradients of captured activations, taken in the user's own backward."""

import sys
import weakref
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from tl_integrations.capture.arena import Copy
from tl_integrations.capture.distributed import local_part
from tl_integrations.capture.events import Gradient
from tl_integrations.capture.payloads import KeptTensor

NOT_YET = "no backward has reached it"
NOT_IN_TIME = "no backward had reached it when the step was handed over"
RECOMPUTED = (
    "it was computed inside a checkpoint with use_reentrant=True, and its recomputation gets the gradient"
)
INFERENCE = "it was computed in inference mode"
NO_GRAD = "it was computed under torch.no_grad()"
NOT_CONNECTED = "nothing that it was computed from requires gradients"


class GradientTap:
    """Listens on one tensor until it is closed, and adds up in `gradient` what several backwards deliver."""

    __slots__ = ("_handle", "gradient")

    def __init__(self, out: Tensor) -> None:
        self._handle: RemovableHandle | None = None
        self.gradient: Gradient
        if not out.requires_grad:
            self.gradient = Gradient(reason=_why_none(out))
            return
        self.gradient = Gradient(reason=NOT_YET)
        # The hook holds the result weakly: a graph that outlives the recording keeps none of its memory.
        hook = _adder(weakref.ref(self.gradient))
        self._handle = out.register_hook(hook)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Stop listening."""
        if self._handle is not None:
            self._handle.remove()

    def finish(self, loss_scale: float, accumulate: int, copy: Copy) -> None:
        """Stop listening; what arrived becomes memory of its own."""
        self.close()
        gradient = self.gradient
        gradient.loss_scale, gradient.accumulate = loss_scale, accumulate
        if isinstance(gradient.payload, KeptTensor):
            gradient.payload.own(copy)
        elif gradient.reason == NOT_YET:
            gradient.reason = NOT_IN_TIME


def _why_none(out: Tensor) -> str:
    if not (out.is_floating_point() or out.is_complex()):
        return f"its dtype is {str(out.dtype).removeprefix('torch.')}"
    if torch.is_inference_mode_enabled():
        return INFERENCE
    if torch.is_grad_enabled():
        return NOT_CONNECTED
    return RECOMPUTED if _in_reentrant_checkpoint() else NO_GRAD


def _in_reentrant_checkpoint() -> bool:
    module = sys.modules.get("torch.utils.checkpoint")
    if module is None:
        return False
    wanted, frame = module.CheckpointFunction.forward.__code__, sys._getframe(1)
    while frame is not None and frame.f_code is not wanted:
        frame = frame.f_back  # type: ignore[assignment]
    return frame is not None


def _adder(target: "weakref.ref[Gradient]") -> Callable[[Tensor], None]:
    def add(delivered: Tensor) -> None:
        gradient = target()
        if gradient is None:
            return
        with torch.no_grad():
            new = local_part(delivered.detach())
            if gradient.payload is not None:
                new = gradient.payload.read() + new
            # An alias is enough while nobody writes to it; its version tells if somebody did.
            gradient.payload = KeptTensor(new, None if new.is_inference() else new._version)
            gradient.reason = ""

    return add
