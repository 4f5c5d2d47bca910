"""A shard while it grows: tensors appended back to back, the header filled in at the end."""

import os
from collections.abc import Sequence
from contextlib import suppress

from xxhash import xxh3_128, xxh3_128_digest

from tl_integrations.storage.filesystem import Buffer, Folder
from tl_integrations.storage.shards import ALIGNMENT, HEADER_ROOM, entry_kind, header, placed_entry
from tl_integrations.storage.tlspec import Plain, shard_name, sum_text

SMALL = 16 << 20
"""A finished shard with less data than this is written anew without the room in front."""
_ENTRY_BYTES = 320
"""More than the header entries of a record and its gradient take besides their shapes, fillers included."""
_METADATA_BYTES = 256
_PIECE = 1 << 19
"""Summed and then written at once: the bytes are still in the processor's cache when the system copies them,
which hides most of the checksum's cost (64 KiB tensors: 0.97x of raw writes; 1.11x in one piece of 33 MB)."""
_ZEROS = bytes(ALIGNMENT)


class ShardFile:
    """One growing shard. Nothing is on disk until the first tensor comes.

    Args:
        number: Of the file, from 1.
        bundle_id: Written into the header, so that shards cannot be exchanged between bundles.
        durable: The file's data must survive a power cut also while the file is replaced by a tighter one.
    """

    def __init__(self, folder: Folder, number: int, bundle_id: str, *, durable: bool) -> None:
        self.number = number
        self._durable = durable
        self.nbytes: int = 0
        """Bytes of data so far, fillers included."""
        self._folder, self._id = folder, bundle_id
        self._fd = -1
        self.waiting = 0
        """Bytes that were placed and are not written yet."""
        self._placed: list[tuple[Buffer, int]] = []
        self._entries: list[str] = []
        self.digests: list[bytes] = []
        """Of each entry of the header, once it is written."""
        self._header_bytes = _METADATA_BYTES
        self._finished: Plain | None = None
        self._fillers = 0

    @property
    def name(self) -> str:
        return shard_name(self.number)

    @property
    def opened(self) -> bool:
        return self._fd >= 0

    def has_room(self, dimensions: int) -> bool:
        """Whether one more record and its gradient, of so many dimensions together, fit into the header."""
        return self._finished is None and self._header_bytes + _ENTRY_BYTES + 20 * dimensions < HEADER_ROOM

    def place(self, name: str, kind: str, content: Buffer, nbytes: int) -> tuple[int, int]:
        """Take a tensor's elements, to be summed and written by `flush`; they must be there until then.

        Args:
            kind: What `entry_kind` says of the tensor.
        Returns: where it begins in the data area, and the number of its entry.
        """
        if self.nbytes % ALIGNMENT:
            self._fill(-self.nbytes % ALIGNMENT)
        return self._place(name, kind, content, nbytes)

    def flush(self) -> None:
        """Sum and write what was placed; the tensors are not needed after that.

        Nothing else is done in between, so that a piece is still in the cache when it is written.
        """
        if not self._placed:
            return
        if not self.opened:
            self._fd = self._folder.open(f"{self.name}.part", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            self._folder.disk.seek(self._fd, HEADER_ROOM)
        buffers: list[Buffer] = []
        waiting = 0
        for content, nbytes in self._placed:
            if nbytes > _PIECE:
                self._write(buffers)
                buffers, waiting = [], 0
                self.digests.append(self._write_pieces(content, nbytes))
                continue
            self.digests.append(xxh3_128_digest(content))
            buffers.append(content)
            waiting += nbytes
            if waiting >= _PIECE:
                self._write(buffers)
                buffers, waiting = [], 0
        self._write(buffers)
        self._placed.clear()
        self.waiting = 0

    def mark(self) -> tuple[int, int, int, int]:
        """A place to come back to with `restore`."""
        return self.nbytes, len(self._entries), self._header_bytes, self._fillers

    def restore(self, mark: tuple[int, int, int, int] | None) -> None:
        """Forget what came after the mark, or everything, in the file too; a finished file stays as it is."""
        self._placed.clear()
        self.waiting = 0
        if self._finished is not None:
            return
        self.nbytes, entries, self._header_bytes, self._fillers = mark or (0, 0, _METADATA_BYTES, 0)
        del self._entries[entries:], self.digests[entries:]
        if self.opened:
            self._folder.disk.truncate(self._fd, HEADER_ROOM + self.nbytes)
            self._folder.disk.seek(self._fd, HEADER_ROOM + self.nbytes)

    def sync(self) -> None:
        if self.opened:
            self._folder.disk.sync(self._fd)

    def finish(self) -> Plain | None:
        """Make it an ordinary safetensors file under its final name.

        Returns: its line in the manifest, or None when it never held a tensor. A second call returns it too.
        """
        if self._finished is not None:
            return self._finished
        if not self.opened:
            return None
        if not self._entries:
            self.close()
            self._folder.unlink(f"{self.name}.part")
            return None
        tight = self.nbytes < SMALL
        about = {"format": "pt", "bundle": self._id}
        head = header(self._entries, about, room=None if tight else HEADER_ROOM)
        total = xxh3_128(head)
        total.update(b"".join(self.digests))
        if tight:
            self._rewrite(head)
        else:
            self._folder.disk.pwrite(self._fd, head, 0)
            self.sync()
            self._folder.disk.rename(f"{self.name}.part", self.name, at=self._folder.fd)
        # From here on the file has its name: whatever fails now, no more tensors go into it.
        nbytes = len(head) + self.nbytes
        self._finished = {"name": self.name, "nbytes": nbytes, "sum": sum_text(total.digest())}
        if tight:
            self._remove_growing()
        self.close()
        return self._finished

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                self._folder.disk.close(fd)

    def _fill(self, gap: int) -> None:
        self._place(f"p{self._fillers:08d}", entry_kind("U8", [gap]), _ZEROS[:gap], gap)
        self._fillers += 1

    def _place(self, name: str, kind: str, content: Buffer, nbytes: int) -> tuple[int, int]:
        start, number = self.nbytes, len(self._entries)
        self.nbytes = stop = start + nbytes
        entry = placed_entry(name, kind, start, stop)
        self._entries.append(entry)
        self._header_bytes += len(entry) + 1
        self._placed.append((content, nbytes))
        self.waiting += nbytes
        return start, number

    def _write(self, buffers: Sequence[Buffer]) -> None:
        if buffers:
            self._folder.disk.write(self._fd, buffers)

    def _write_pieces(self, content: Buffer, nbytes: int) -> bytes:
        """Sum and write a large tensor. Returns: its checksum."""
        total, whole = xxh3_128(), memoryview(content).cast("B")
        for start in range(0, nbytes, _PIECE):
            piece = whole[start : start + _PIECE]
            total.update(piece)
            self._folder.disk.write(self._fd, [piece])
        return total.digest()

    def _rewrite(self, head: bytes) -> None:
        """Copy the data behind a header of its own size."""
        disk, temporary = self._folder.disk, f"{self.name}.tmp"
        fd = self._folder.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            disk.write(fd, [head])
            for start in range(0, self.nbytes, _PIECE):
                size = min(_PIECE, self.nbytes - start)
                disk.write(fd, [disk.read(self._fd, size, HEADER_ROOM + start)])
            disk.sync(fd)
        finally:
            disk.close(fd)
        disk.rename(temporary, self.name, at=self._folder.fd)

    def _remove_growing(self) -> None:
        """Readers take the finished file when both are there, so one that cannot be removed does no harm."""
        if self._durable:
            self._folder.sync()
        with suppress(OSError):
            self._folder.unlink(f"{self.name}.part")
