"""A tensor in a bundle, read when it is asked for, its checksum compared on every read."""

import os
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from xxhash import xxh3_128_digest

from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.filesystem import DISK, Disk, Folder, io_errors
from tl_integrations.storage.shard_reading import data_start, reading_shard
from tl_integrations.storage.tensors import bytes_of, from_bytes
from tl_integrations.storage.tlspec import shard_name


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredPayload:
    """Where a tensor lies. Nothing is kept open: a bundle may be moved or removed between two reads."""

    bundle: Path
    shard: int
    offset: int
    """Bytes from the start of the shard's data area."""
    nbytes: int
    digest: bytes
    shape: tuple[int, ...]
    dtype: torch.dtype
    name: str
    """Of the record, for messages."""
    disk: Disk = DISK

    def read(self) -> Tensor:
        """The tensor, in memory of its own.

        Raises:
            BundleCorruptError: if its bytes are not what was written, or fewer than its shape needs.
            BundleIOError: if they cannot be read.
        """
        where = f"{self.name!r} in {str(self.bundle / shard_name(self.shard))!r}"
        if bytes_of(self.dtype, self.shape) != self.nbytes:
            raise BundleCorruptError(
                f"The tensor {where} has {self.nbytes} bytes; its shape {list(self.shape)} needs others."
            )
        content = self._bytes(where)
        if xxh3_128_digest(content) != self.digest:
            raise BundleCorruptError(
                f"The tensor {where} is damaged: its bytes do not fit their checksum. "
                "Other records can still be read; `tl.recover(path)` leaves the damaged ones out."
            )
        return from_bytes(content, self.dtype, self.shape)

    def _bytes(self, where: str) -> bytearray:
        with Folder(self.bundle, self.disk) as folder:
            with (
                reading_shard(folder, self.shard) as (fd, name),
                io_errors("read", folder.path / name),
            ):
                size = os.fstat(fd).st_size
                start = data_start(folder, fd, name, size)
                if start + self.offset + self.nbytes > size:
                    raise BundleCorruptError(
                        f"The tensor {where} is cut off: the file has only {size} bytes."
                    )
                content = folder.disk.read(fd, self.nbytes, start + self.offset)
        if len(content) != self.nbytes:
            raise BundleCorruptError(
                f"The tensor {where} is cut off: {len(content)} of {self.nbytes} bytes are there."
            )
        return content
