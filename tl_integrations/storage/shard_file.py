"""A shard while it grows: tensors appended back to back, the header filled in at the end."""

import os
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import suppress
from itertools import accumulate

from xxhash import xxh3_128, xxh3_128_digest

from tl_integrations.storage.filesystem import Buffer, Folder
from tl_integrations.storage.shards import ALIGNMENT, HEADER_ROOM, entry_kind, header, placed_entry
from tl_integrations.storage.tlspec import Plain, shard_name, sum_text

SMALL = 16 << 20
"""A finished shard with less data than this is written anew without the room in front."""
_ENTRY_BYTES = 72
"""More than an entry takes besides its kind: a name and two places of 12 digits."""
_FILLER_BYTES = 96
"""More than a filler's entry takes."""
_ENTRIES_BYTES = 2 * (_ENTRY_BYTES + _FILLER_BYTES + 32)
"""More than the entries of a record and its gradient take besides their shapes, fillers included."""
_METADATA_BYTES = 256
_PIECE = 1 << 20
"""Written and then summed at once: what the system has just copied is still in the processor's cache, which
hides the checksum's cost (64 KiB tensors: 0.94x of raw writes; 1.0x summed first, 1.1x all in one go)."""
_COPIED_AT_ONCE = 1 << 16
"""Little enough for memory that the process has already: a fresh MiB costs more than copying it."""
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
        self._tight = -1
        """Of the file without the room in front, until it has its name."""
        # Columns, so that a step's tensors cost a few calls together; the header's text is made at the end.
        self._names: list[int] = []
        """Twice the record's number, and one more for its gradient."""
        self._kinds: list[str] = []
        self._starts: list[int] = []
        self._sizes: list[int] = []
        self._digests: list[bytes] = []
        self._header_bytes = _METADATA_BYTES
        self._finished: Plain | None = None

    @property
    def name(self) -> str:
        return shard_name(self.number)

    @property
    def opened(self) -> bool:
        return self._fd >= 0

    def has_room(self, dimensions: int) -> bool:
        """Whether one more record and its gradient, of so many dimensions together, fit into the header."""
        return self._finished is None and self.room(dimensions) > 0

    def room(self, dimensions: int) -> int:
        """How many records surely fit, each with a gradient and so many dimensions together."""
        return (HEADER_ROOM - self._header_bytes) // (_ENTRIES_BYTES + 20 * dimensions)

    def starts(self, sizes: Sequence[int]) -> list[int]:
        """Where tensors of so many bytes would begin in the data area, and where one more after them."""
        begin = -(-self.nbytes // ALIGNMENT) * ALIGNMENT
        return list(accumulate([-(-size // ALIGNMENT) * ALIGNMENT for size in sizes], initial=begin))

    def append(
        self, names: Sequence[int], kinds: Sequence[str], starts: Sequence[int], contents: Sequence[Buffer]
    ) -> Sequence[bytes]:
        """Write tensors' elements.

        Args:
            names: Of each twice its record's number, and one more for a gradient.
            kinds: What `entry_kind` says of each.
            starts: What the method `starts` says.
        Returns: their checksums.
        """
        if not contents:
            return []
        if not self.opened:
            self._fd = self._folder.open(f"{self.name}.part", os.O_RDWR | os.O_CREAT | os.O_TRUNC)
            self._folder.disk.seek(self._fd, HEADER_ROOM)
        sizes = list(map(len, contents))
        gaps = self._gaps(starts, sizes)
        digests = self._write(starts, gaps, contents)
        fillers = len(gaps) - gaps.count(0)
        self._header_bytes += len(sizes) * _ENTRY_BYTES + sum(map(len, kinds)) + fillers * _FILLER_BYTES
        self.nbytes = starts[-2] + sizes[-1]
        self._names += names
        self._kinds += kinds
        self._starts += starts[:-1]
        self._sizes += sizes
        self._digests += digests
        return digests

    def mark(self) -> tuple[int, int, int]:
        """A place to come back to with `restore`."""
        return self.nbytes, len(self._names), self._header_bytes

    def restore(self, mark: tuple[int, int, int] | None) -> None:
        """Forget what came after the mark, or everything, in the file too; a finished file stays as it is."""
        if self._finished is not None:
            return
        self.nbytes, tensors, self._header_bytes = mark or (0, 0, _METADATA_BYTES)
        for column in (self._names, self._kinds, self._starts, self._sizes, self._digests):
            del column[tensors:]
        if self.opened:
            self._folder.disk.truncate(self._fd, HEADER_ROOM + self.nbytes)
            self._folder.disk.seek(self._fd, HEADER_ROOM + self.nbytes)

    def sync(self) -> None:
        if self.opened:
            self._folder.disk.sync(self._fd)

    def prepare(self) -> Plain | None:
        """Write what is missing of an ordinary safetensors file; nothing is synced or renamed yet.

        Returns: its line in the manifest, or None when it never held a tensor. A second call begins anew.
        """
        if self._finished is not None:
            return self._finished
        self._close_tight()
        if not self.opened:
            return None
        if not self._names:
            self.close()
            self._folder.unlink(f"{self.name}.part")
            return None
        room = None if self.nbytes < SMALL else HEADER_ROOM
        entries = list(self._entries())
        head = header([entry for entry, _ in entries], {"format": "pt", "bundle": self._id}, room=room)
        total = xxh3_128(head)
        total.update(b"".join([digest for _, digest in entries]))
        if room is None:
            self._write_tight(head)
        else:
            self._folder.disk.pwrite(self._fd, head, 0)
        return {"name": self.name, "nbytes": len(head) + self.nbytes, "sum": sum_text(total.digest())}

    def finish(self, prepared: Plain) -> None:
        """Make the file durable and give it its name.

        Args:
            prepared: What `prepare` returned.
        """
        if self._finished is not None:
            return
        tight = self._tight >= 0
        self._folder.disk.sync(self._tight if tight else self._fd)
        written = f"{self.name}.{'tmp' if tight else 'part'}"
        self._folder.disk.rename(written, self.name, at=self._folder.fd)
        # From here on the file has its name: whatever fails now, no more tensors go into it.
        self._finished = prepared
        if tight:
            self._remove_growing()
        self.close()

    def close(self) -> None:
        self._close_tight()
        fd, self._fd = self._fd, -1
        self._close(fd)

    def _entries(self) -> Iterator[tuple[str, bytes]]:
        """Of tensors and fillers in file order the part of the header's text and the checksum."""
        reached = fillers = 0
        columns = (self._names, self._kinds, self._starts, self._sizes, self._digests)
        for name, kind, start, size, digest in zip(*columns, strict=True):
            if start > reached:
                gap = entry_kind("U8", [start - reached])
                filler = placed_entry(f"p{fillers:08d}", gap, reached, start)
                yield filler, xxh3_128_digest(_ZEROS[: start - reached])
                fillers += 1
            reached = start + size
            yield placed_entry(f"{'rg'[name & 1]}{name >> 1:09d}", kind, start, reached), digest

    def _gaps(self, starts: Sequence[int], sizes: Sequence[int]) -> list[int]:
        """Bytes to fill in front of each tensor; empty where all lie back to back."""
        if starts[-1] - self.nbytes == sum(sizes):
            return []
        stops = [start + size for start, size in zip(starts, sizes)]
        return [start - stop for start, stop in zip(starts, [self.nbytes, *stops[:-1]])]

    def _write(self, starts: Sequence[int], gaps: Sequence[int], contents: Sequence[Buffer]) -> list[bytes]:
        """Write tensors with the fillers in front of them, and sum them. Returns: the checksums."""
        digests: list[bytes] = []
        for first, stop in _pieces(starts):
            tensors = buffers = contents[first:stop]
            if gaps:
                buffers = [part for n in range(first, stop) for part in (_ZEROS[: gaps[n]], contents[n])]
            if stop - first == 1 and len(tensors[0]) > _PIECE:
                self._folder.disk.write(self._fd, buffers[:-1])
                digests.append(self._write_large(tensors[0]))
                continue
            self._folder.disk.write(self._fd, buffers)
            digests += map(xxh3_128_digest, tensors)
        return digests

    def _write_large(self, content: Buffer) -> bytes:
        """Write and sum a tensor of several pieces. Returns: its checksum."""
        total, whole = xxh3_128(), memoryview(content).cast("B")
        for start in range(0, len(whole), _PIECE):
            piece = whole[start : start + _PIECE]
            self._folder.disk.write(self._fd, [piece])
            total.update(piece)
        return total.digest()

    def _write_tight(self, head: bytes) -> None:
        """Copy the data behind a header of its own size."""
        disk = self._folder.disk
        self._tight = fd = self._folder.open(f"{self.name}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        disk.write(fd, [head])
        for start in range(0, self.nbytes, _COPIED_AT_ONCE):
            size = min(_COPIED_AT_ONCE, self.nbytes - start)
            disk.write(fd, [disk.read(self._fd, size, HEADER_ROOM + start)])
        disk.begin_sync(fd)

    def _close_tight(self) -> None:
        fd, self._tight = self._tight, -1
        self._close(fd)

    def _close(self, fd: int) -> None:
        if fd >= 0:
            with suppress(OSError):
                self._folder.disk.close(fd)

    def _remove_growing(self) -> None:
        """Readers take the finished file when both are there, so one that cannot be removed does no harm."""
        if self._durable:
            self._folder.sync()
        with suppress(OSError):
            self._folder.unlink(f"{self.name}.part")


def _pieces(starts: Sequence[int]) -> Iterator[tuple[int, int]]:
    """Split consecutive tensors into runs of about a piece; a larger tensor is a run of its own.

    Args:
        starts: Where each begins, and, as the last, where one more would.
    """
    first, count = 0, len(starts) - 1
    while first < count:
        stop = min(max(bisect_left(starts, starts[first] + _PIECE), first + 1), count)
        if stop - first > 1 and starts[stop] - starts[stop - 1] > _PIECE:
            stop -= 1
        yield first, stop
        first = stop
