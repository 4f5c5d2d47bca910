"""How a tensor is kept: as an alias that is copied before anything writes to it, or as a copy.

An alias lives only while its forward is watched and, for recordings in memory, until it is first read.
Before an op runs that may write into an argument, or that lets memory escape to code nobody sees, the aliases
on that memory become copies. What slips past (a jitted function, another thread) has raised the tensor's
version, and reading the payload is then an error, never another number.
"""

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from tl_integrations.capture.arena import Copy, copied
from tl_integrations.capture.distributed import local_part
from tl_integrations.errors import PayloadOverwrittenError, UnsupportedTensorError
from tl_integrations.options import CaptureSpec

is_functorch_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


class KeptTensor:
    """A payload in memory: owned, or an alias (`version` is set) that turns into a copy when first read."""

    __slots__ = ("_lost", "_tensor", "_version")

    def __init__(self, tensor: Tensor, version: int | None = None) -> None:
        self._tensor = tensor
        self._version = version
        self._lost = False

    @property
    def nbytes(self) -> int:
        return self._tensor.numel() * self._tensor.element_size()

    def own(self, copy: Copy = copied) -> None:
        """Turn an alias into a copy; if its memory was written meanwhile, into nothing."""
        if self._version is None:
            return
        # A storage that was resized to nothing would be read past its end.
        tensor = self._tensor
        shrunk = tensor.layout is torch.strided and tensor.untyped_storage().nbytes() < _extent(tensor)
        if shrunk or tensor._version != self._version:
            self._lost, self._tensor = True, torch.empty(0, dtype=tensor.dtype)
        else:
            self._tensor = copy(tensor)
        self._version = None

    def read(self) -> Tensor:
        self.own()
        if self._lost:
            raise PayloadOverwrittenError(
                "The memory of this tensor was overwritten by something that the capture could not see "
                "(a compiled or jitted function, another thread, or code after the forward). "
                'Record with keep="clone".'
            )
        return self._tensor


class Aliases:
    """The aliases that live, by the storage they lie on, and how they become copies."""

    __slots__ = ("by_storage", "copy")

    def __init__(self, copy: Copy = copied) -> None:
        self.by_storage: dict[int, list[KeptTensor]] = {}
        self.copy = copy

    def add(self, storage: int, kept: KeptTensor) -> None:
        self.by_storage.setdefault(storage, []).append(kept)

    def release(self, tensors: Iterable[Tensor]) -> None:
        """Copy the aliases on these tensors' memory, which is about to change or to be handed out."""
        for tensor in tensors:
            kept = self.by_storage.pop(_storage_key(tensor), None)
            for alias in kept or ():
                alias.own(self.copy)

    def release_all(self) -> None:
        """Copy every alias: its memory will be out of sight."""
        for kept in self.by_storage.values():
            for alias in kept:
                alias.own(self.copy)
        self.by_storage.clear()


def take(
    out: Tensor, aliases: Aliases, args: Any, kwargs: Any, spec: CaptureSpec | None, *, may_alias: bool
) -> KeptTensor | None:
    """Keep a tensor that an op just returned.

    Args:
        out: The tensor.
        aliases: Where an alias is noted.
        args: The op's arguments: a result on an argument's memory is copied at once.
        kwargs: Its keyword arguments.
        spec: How to keep it, when a predicate said so.
        may_alias: Whether an alias will do.
    Returns: None for tensors without data (meta, fake) or that may not leave their transform (vmap).
    """
    kind = type(out)
    if (kind is not Tensor and kind is not Parameter) or spec is not None or out.layout is not torch.strided:
        return _take_unusual(out, spec, aliases.copy)
    if out.is_meta or is_functorch_wrapped(out):
        return None
    kept = out.detach()
    if not may_alias or kept.is_inference():
        return KeptTensor(aliases.copy(kept))
    storage = kept.untyped_storage()
    key: int = storage._cdata
    # An alias pins the whole storage, so a small view of a large one is copied. Memory that cannot be resized
    # belongs to someone else: numpy, a file, another process.
    if storage.nbytes() > 2 * kept.nbytes or not storage.resizable() or _lies_on(key, args, kwargs):
        return KeptTensor(aliases.copy(kept))
    alias = KeptTensor(kept, kept._version)
    aliases.add(key, alias)
    return alias


def _lies_on(storage: int, args: Any, kwargs: Any) -> bool:
    """Whether an argument's memory is that storage."""
    for argument in args:
        if isinstance(argument, Tensor):
            if _storage_key(argument) == storage:
                return True
        elif isinstance(argument, tuple | list) and _lies_on(storage, argument, None):
            return True
    return bool(kwargs) and _lies_on(storage, tuple(kwargs.values()), None)


def held_payload(kept: Tensor, version: int | None, aliases: Aliases) -> KeptTensor | None:
    """Keep a tensor that was detached when it was made, on memory of its own.

    Args:
        kept: The detached tensor, or a copy of it.
        version: Its version then; if it has another by now, the payload is lost, and reading it an error.
            None for a copy.
        aliases: Where the alias is noted.
    Returns: None for tensors without data (meta) or that may not leave their transform (vmap).
    """
    if kept.is_meta or is_functorch_wrapped(kept):
        return None
    if version is None:
        return KeptTensor(aliases.copy(kept) if kept.is_inference() else kept)
    alias = KeptTensor(kept, version)
    if kept.layout is not torch.strided:
        alias.own(aliases.copy)
        return alias
    storage = kept.untyped_storage()
    if storage.nbytes() > 2 * kept.nbytes or not storage.resizable():
        alias.own(aliases.copy)
    else:
        aliases.add(storage._cdata, alias)
    return alias


def _take_unusual(out: Tensor, spec: CaptureSpec | None, copy: Copy) -> KeptTensor | None:
    if spec is not None and not spec.save_out:
        return None
    if out.is_meta or type(out).__name__ == "FakeTensor" or is_functorch_wrapped(out):
        return None
    out = local_part(out)
    if spec is not None and spec.keep_grad:
        if not (out.is_floating_point() or out.is_complex()):
            raise UnsupportedTensorError(
                f"keep_grad=True needs a floating tensor; this one is {out.dtype}. Keep it without."
            )
        return KeptTensor(_cast(out.clone(), spec))
    with torch._C.DisableTorchFunctionSubclass():
        kept = out.detach()
        if spec is not None and (spec.dtype is not None or spec.device is not None):
            cast = _cast(kept, spec)
            return KeptTensor(cast if cast is not kept else copy(kept))
        return KeptTensor(copy(kept))


def _cast(tensor: Tensor, spec: CaptureSpec) -> Tensor:
    return tensor.to(device=spec.device or tensor.device, dtype=spec.dtype or tensor.dtype)


def _storage_key(tensor: Tensor) -> int:
    try:
        key: int = tensor.untyped_storage()._cdata
    except (RuntimeError, NotImplementedError):
        return 0
    return key


def _extent(tensor: Tensor) -> int:
    """Bytes of storage that the tensor reaches into."""
    if tensor.numel() == 0:
        return 0
    last = tensor.storage_offset() + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
    return int((last + 1) * tensor.element_size())
