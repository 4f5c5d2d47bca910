"""Reading every tensor of a bundle against its checksum, shard by shard, each file opened once."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from tl_integrations.errors import BundleError
from tl_integrations.storage.filesystem import Folder
from tl_integrations.storage.record_lines import read_tensor_fields
from tl_integrations.storage.shard_reading import data_start, reading_shard
from tl_integrations.storage.shard_sums import tensor_digest
from tl_integrations.storage.table import Part
from tl_integrations.storage.tensors import bytes_of

Progress = Callable[[int, int], None]
"""Called with bytes done and bytes in all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedTensor:
    """A record or gradient whose bytes are not what was written."""

    row: int
    """In its part."""
    gradient: bool
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tensor:
    row: int
    gradient: bool
    offset: int
    nbytes: int
    digest: bytes
    needed: int
    """Bytes that dtype and shape ask for; -1 when those cannot be read."""


def total_bytes(parts: Sequence[Part], kept: Sequence[np.ndarray]) -> int:
    """Bytes of all tensors that `damaged_tensors` reads."""
    return sum(t.nbytes for part, rows in zip(parts, kept) for t in _tensors(part, rows))


def damaged_tensors(part: Part, kept: np.ndarray, done: Callable[[int], None]) -> list[DamagedTensor]:
    """Records of one part whose tensor or gradient cannot be read.

    Args:
        kept: The rows to look at.
        done: Called with the bytes of each tensor that was read.
    """
    tensors = sorted(_tensors(part, kept), key=lambda tensor: tensor.offset)
    if not tensors:
        return []
    try:
        with Folder(part.bundle, part.disk) as folder:
            with reading_shard(folder, part.segment.shard) as (fd, name):
                size = os.fstat(fd).st_size
                start = data_start(folder, fd, name, size)
                return [bad for t in tensors if (bad := _check(folder, fd, start, size, t, done))]
    except (BundleError, OSError) as error:
        return [DamagedTensor(row=t.row, gradient=t.gradient, reason=str(error)) for t in tensors]


def _check(
    folder: Folder, fd: int, start: int, size: int, tensor: _Tensor, done: Callable[[int], None]
) -> DamagedTensor | None:
    reason = ""
    if tensor.needed != tensor.nbytes:
        reason = "its shape and dtype do not fit its bytes"
    elif tensor.offset < 0 or start + tensor.offset + tensor.nbytes > size:
        reason = "it is cut off"
    elif tensor_digest(folder, fd, start + tensor.offset, tensor.nbytes) != tensor.digest:
        reason = "its bytes do not fit their checksum"
    done(tensor.nbytes)
    return DamagedTensor(row=tensor.row, gradient=tensor.gradient, reason=reason) if reason else None


def _tensors(part: Part, kept: np.ndarray) -> list[_Tensor]:
    columns, wanted = part.segment.columns, set(kept.tolist())
    found = []
    for row in kept.tolist():
        if columns["nbytes"][row] >= 0:
            needed = _record_bytes(part, int(columns["site"][row]))
            found.append(_tensor(part, "", row, row, needed))
    for row, at in part.gradients.items():
        if row in wanted:
            found.append(_tensor(part, "grad_", at, row, _gradient_bytes(part, at)))
    return found


def _tensor(part: Part, prefix: str, at: int, row: int, needed: int) -> _Tensor:
    columns = part.segment.columns
    return _Tensor(
        row=row,
        gradient=bool(prefix),
        offset=int(columns[f"{prefix}offset"][at]),
        nbytes=max(int(columns[f"{prefix}nbytes"][at]), 0),
        digest=columns[f"{prefix}sum"][at].tobytes(),
        needed=needed,
    )


def _record_bytes(part: Part, site: int) -> int:
    try:
        return int(part.site(site)["stored_nbytes"])
    except BundleError:
        return -1


def _gradient_bytes(part: Part, at: int) -> int:
    plain = part.segment.sites[int(part.segment.columns["grad_site"][at])]
    try:
        shape, dtype = read_tensor_fields(plain, part.segment.where)
    except BundleError:
        return -1
    return bytes_of(dtype, shape)
