"""`index.jsonl` while it grows."""

import os
from contextlib import suppress

from xxhash import xxh3_128

from tl_integrations.storage.filesystem import Folder
from tl_integrations.storage.tlspec import INDEX, sum_text

_HASHED_AT_ONCE = 1 << 20


class IndexLog:
    """The open file; what it holds already is read once, for its checksum.

    Args:
        folder: The bundle.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._fd = folder.open(INDEX, os.O_RDWR | os.O_CREAT)
        self._hash = xxh3_128()
        self.nbytes: int = 0
        self.broken: OSError | None = None
        """Why half a line could not be taken back; None while all is well."""
        try:
            self._hash_what_is_there()
        except BaseException:
            self.close()
            raise

    @property
    def sum(self) -> str:
        """The checksum of the whole file."""
        return sum_text(self._hash.digest())

    def append(self, content: bytes, *, durable: bool) -> None:
        """Add lines, whole or not at all.

        Args:
            durable: Return when they would survive a power cut.
        """
        try:
            self._folder.disk.write(self._fd, [content])
            if durable:
                self.sync()
        except OSError:
            self._cut()
            raise
        self._hash.update(content)
        self.nbytes += len(content)

    def begin_sync(self) -> None:
        self._folder.disk.begin_sync(self._fd)

    def sync(self) -> None:
        self._folder.disk.sync(self._fd)

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                self._folder.disk.close(fd)

    def _cut(self) -> None:
        try:
            self._folder.disk.truncate(self._fd, self.nbytes)
            self._folder.disk.seek(self._fd, self.nbytes)
        except OSError as error:
            self.broken = error

    def _hash_what_is_there(self) -> None:
        disk, end = self._folder.disk, os.fstat(self._fd).st_size
        while self.nbytes < end:
            content = disk.read(self._fd, min(_HASHED_AT_ONCE, end - self.nbytes), self.nbytes)
            if not content:
                break
            self._hash.update(content)
            self.nbytes += len(content)
        disk.seek(self._fd, self.nbytes)
