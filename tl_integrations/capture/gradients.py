"""Gradients of captured activations, taken in the user's own backward."""

import weakref
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.hooks import RemovableHandle

from tl_integrations.capture.arena import Copy
from tl_integrations.capture.events import Gradient
from tl_integrations.capture.payloads import KeptTensor


class GradientTap:
    """Listens on one tensor until it is closed, and adds up in `gradient` what several backwards deliver."""

    __slots__ = ("_handle", "gradient")

    def __init__(self, out: Tensor) -> None:
        self.gradient = Gradient()
        # The hook holds the result weakly: a graph that outlives the recording keeps none of its memory.
        hook = _adder(weakref.ref(self.gradient))
        self._handle: RemovableHandle = out.register_hook(hook)  # type: ignore[no-untyped-call]

    def close(self) -> None:
        """Stop listening."""
        self._handle.remove()

    def finish(self, loss_scale: float, accumulate: int, copy: Copy) -> None:
        """Stop listening; what arrived becomes memory of its own."""
        self.close()
        self.gradient.loss_scale, self.gradient.accumulate = loss_scale, accumulate
        if isinstance(self.gradient.payload, KeptTensor):
            self.gradient.payload.own(copy)


def _adder(target: "weakref.ref[Gradient]") -> Callable[[Tensor], None]:
    def add(delivered: Tensor) -> None:
        gradient = target()
        if gradient is None:
            return
        with torch.no_grad():
            new = delivered.detach()
            if gradient.payload is not None:
                new = gradient.payload.read() + new
            # An alias is enough while nobody writes to it; its version tells if somebody did.
            gradient.payload = KeptTensor(new, None if new.is_inference() else new._version)

    return add
