"""Memory for copies that go to a sink, used again by a later captured step.

Memory that the system hands out for the first time costs a page fault for each 4 KiB, which on a training
step that copies 33 MB takes longer than the copying. So the memory of a copy is lent, and lent again when
nobody holds the copy any more. Nobody has to say so: the copy's storage keeps the only reference to a small
object, the lease, and a lease that is gone means that every tensor, view, array and storage on that memory is
gone, on every thread.
"""

from collections.abc import Callable
from typing import Any, TypeAlias
from weakref import ref

import torch
from torch import Tensor

Copy: TypeAlias = Callable[[Tensor], Tensor]
"""Makes a copy on memory of its own."""

SMALLEST = 256 << 10
"""Below this many bytes lending takes longer than the page faults that it saves."""
_MOST_BYTES = 1 << 30
"""What an arena holds at most; further copies are made on memory that is given back."""
_PATIENCE = 4
"""Memory that was last lent more captured steps ago than this is given back."""


def copied(tensor: Tensor) -> Tensor:
    """A copy that is no inference tensor."""
    if tensor.is_inference():
        with torch.inference_mode(False):
            return tensor.clone()
    return tensor.clone()


class _Block:
    """One piece of memory, and whether a copy lies on it."""

    __slots__ = ("_lease", "memory", "step")

    def __init__(self, nbytes: int) -> None:
        self.memory = torch.empty(nbytes, dtype=torch.uint8, device="cpu")
        self._lease: ref[Any] | None = None
        self.step = 0
        """When it was last lent."""

    @property
    def idle(self) -> bool:
        return self._lease is None or self._lease() is None

    def lend(self, like: Tensor) -> Tensor:
        """An unwritten tensor of that dtype and layout on this memory."""
        lease = self.memory.numpy()
        self._lease = ref(lease)
        # A storage made of an array holds it until the storage itself goes.
        storage = torch.from_numpy(lease).untyped_storage()
        return torch.empty(0, dtype=like.dtype, device="cpu").set_(storage, 0, like.shape, _strides(like))


class Arena:
    """Copies tensors in host memory onto memory of earlier copies; all others it clones.

    Memory of a GPU is left to torch's own allocator, which keeps what is given back and knows its streams.
    """

    __slots__ = ("_blocks", "_idle", "_nbytes", "_step")

    def __init__(self) -> None:
        self._blocks: list[_Block] = []
        self._idle: dict[int, list[_Block]] = {}
        self._nbytes = 0
        self._step = 0

    def begin(self) -> None:
        """A captured step begins: find what nobody holds any more, give back what is not used."""
        self._step += 1
        self._blocks = [block for block in self._blocks if self._step - block.step <= _PATIENCE]
        self._nbytes = sum(block.memory.numel() for block in self._blocks)
        self._idle = {}
        for block in self._blocks:
            if block.idle:
                self._idle.setdefault(block.memory.numel(), []).append(block)

    def copy(self, tensor: Tensor) -> Tensor:
        """The same values in the same layout on memory of its own."""
        if not _suits(tensor):
            return copied(tensor)
        block = self._block(tensor.nbytes)
        if block is None:
            return copied(tensor)
        block.step = self._step
        if torch.is_inference_mode_enabled():
            with torch.inference_mode(False):
                return block.lend(tensor).copy_(tensor)
        return block.lend(tensor).copy_(tensor)

    def clear(self) -> None:
        """Give all memory back; copies keep theirs."""
        self._blocks, self._idle, self._nbytes = [], {}, 0

    def _block(self, nbytes: int) -> _Block | None:
        """Idle memory of exactly that size: whoever stores a tensor's whole storage stores no more."""
        if idle := self._idle.get(nbytes):
            return idle.pop()
        if self._nbytes + nbytes > _MOST_BYTES:
            return None
        block = _Block(nbytes)
        self._blocks.append(block)
        self._nbytes += nbytes
        return block


def _suits(tensor: Tensor) -> bool:
    """Whether a copy is a plain tensor in host memory, and large enough to be worth it."""
    return (
        type(tensor) is Tensor
        and tensor.is_cpu
        and tensor.numel() * tensor.element_size() >= SMALLEST
        and tensor.layout is torch.strided
        and not tensor.requires_grad
        and not tensor.is_quantized
        # Modes that see every operator (fake tensors) and transforms (vmap) are given the one they know.
        and not torch._C._len_torch_dispatch_stack()
        and torch._C._functorch.peek_interpreter_stack() is None
    )


def _strides(tensor: Tensor) -> tuple[int, ...]:
    """Those of a clone."""
    return tensor.stride() if tensor.is_contiguous() else torch.empty_like(tensor, device="meta").stride()
