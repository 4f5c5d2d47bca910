"""Gradients of captured activations, taken in the user's own backward."""

import weakref

import torch
from torch import Tensor

from tl_integrations.capture.events import Gradient
from tl_integrations.capture.payloads import KeptTensor


class GradientTap:
    """Listens on one tensor until it is closed; adds up what several backwards deliver."""

    __slots__ = ("__weakref__", "_handle", "_sum", "_version")

    def __init__(self, out: Tensor) -> None:
        self._sum: Tensor | None = None
        self._version = 0
        # The hook holds the tap weakly: a graph that outlives the recording keeps none of its memory.
        tap = weakref.ref(self)

        def listen(gradient: Tensor) -> None:
            here = tap()
            if here is not None:
                here._add(gradient)

        self._handle = out.register_hook(listen)  # type: ignore[no-untyped-call]

    def _add(self, gradient: Tensor) -> None:
        with torch.no_grad():
            if self._sum is None:
                # An alias is enough while nobody writes; its version tells if somebody did.
                self._sum = gradient.detach()
                self._version = self._sum._version
            else:
                self._sum = self._sum + gradient.detach()
                self._version = self._sum._version

    def close(self) -> None:
        """Stop listening."""
        self._handle.remove()

    def payload(self) -> KeptTensor | None:
        """What was delivered, as memory of its own; None before a backward."""
        if self._sum is None:
            return None
        kept = KeptTensor(self._sum, self._version)
        kept.own()
        return kept

    def gradient(self, loss_scale: float, accumulate: int) -> Gradient:
        """What a record carries."""
        return Gradient(payload=self.payload(), loss_scale=loss_scale, accumulate=accumulate)
