"""The one door to the disk: every system call of a bundle goes through a `Disk`.

Tests swap the disk for one that fails at the k-th call, keeps a journal, or is slow. A `Folder` is a
directory held open: names are resolved inside it, links are never followed, and only regular files are read.
"""

import errno
import os
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from ctypes import Array, c_ubyte
from pathlib import Path
from typing import Any, TypeVar

from tl_integrations.errors import (
    BundleCorruptError,
    BundleIOError,
    BundleLimitError,
    BundleUnsafePathError,
)

T = TypeVar("T")
Buffer = bytes | bytearray | memoryview | Array[c_ubyte]
"""Bytes, one per item."""
_MOST_BUFFERS = 1024
"""What one `writev` takes at most (IOV_MAX on Linux and macOS)."""


class UnsyncedError(OSError):
    """A sync failed: the system may have forgotten what it could not write, and would not say so again."""


class Disk:
    """System calls by name; a subclass overrides `call` to watch or to fail them."""

    def call(self, name: str, function: Callable[..., T], *args: Any, **kwargs: Any) -> T:
        return function(*args, **kwargs)

    def open(
        self, path: str | os.PathLike[str], flags: int, mode: int = 0o666, *, at: int | None = None
    ) -> int:
        return self.call("open", os.open, path, flags | os.O_CLOEXEC, mode, dir_fd=at)

    def close(self, fd: int) -> None:
        self.call("close", os.close, fd)

    def write(self, fd: int, buffers: Sequence[Buffer]) -> None:
        """All bytes of all buffers, in order: short writes and signals are continued."""
        left = [buffer for buffer in buffers if len(buffer)]
        while left:
            now = left[:_MOST_BUFFERS]
            try:
                written = self.call("write", os.writev, fd, now)
            except InterruptedError:
                continue
            whole = written == sum(map(len, now))
            left = left[len(now) :] if whole else _after(left, written)

    def pwrite(self, fd: int, content: Buffer, offset: int) -> None:
        left = memoryview(content).cast("B")
        while left:
            try:
                written = self.call("write", os.pwrite, fd, left, offset)
            except InterruptedError:
                continue
            left, offset = left[written:], offset + written

    def read(self, fd: int, nbytes: int, offset: int) -> bytearray:
        """Up to `nbytes` from `offset`; fewer only at the file's end."""
        content = bytearray(nbytes)
        view, done = memoryview(content), 0
        while done < nbytes:
            count = self.call("read", os.preadv, fd, [view[done:]], offset + done)
            if count == 0:
                break
            done += count
        view.release()
        del content[done:]
        return content

    def truncate(self, fd: int, nbytes: int) -> None:
        self.call("truncate", os.ftruncate, fd, nbytes)

    def seek(self, fd: int, offset: int) -> None:
        self.call("seek", os.lseek, fd, offset, os.SEEK_SET)

    def sync(self, fd: int) -> None:
        """Make a file's bytes, or a folder's names, durable.

        Raises:
            UnsyncedError: if that failed; trying again would prove nothing.
        """
        try:
            self.call("fsync", os.fsync, fd)
        except OSError as error:
            raise UnsyncedError(error.errno, error.strerror) from error

    def begin_sync(self, fd: int) -> None:
        """Let the system write a file's bytes out while other work goes on; `sync` then waits for less.

        Not for a large file that is read again soon: the system may forget what it has written out.
        """
        if hasattr(os, "posix_fadvise"):
            # Advice: where it cannot be followed, `sync` does all the work.
            with suppress(OSError):
                self.call("fadvise", os.posix_fadvise, fd, 0, 0, os.POSIX_FADV_DONTNEED)

    def rename(self, source: str, target: str, *, at: int | None = None) -> None:
        self.call("rename", os.rename, source, target, src_dir_fd=at, dst_dir_fd=at)

    def unlink(self, name: str, *, at: int | None = None) -> None:
        self.call("unlink", os.unlink, name, dir_fd=at)

    def make_folder(self, path: str) -> None:
        self.call("mkdir", os.mkdir, path, 0o777)

    def remove_folder(self, path: str) -> None:
        self.call("rmdir", os.rmdir, path)

    def names(self, fd: int) -> list[str]:
        return sorted(self.call("listdir", os.listdir, fd))

    def status(self, path: str | os.PathLike[str], *, at: int | None = None) -> os.stat_result:
        return self.call("stat", os.stat, path, dir_fd=at, follow_symlinks=False)


DISK = Disk()
"""The real one."""


def _after(buffers: Sequence[Buffer], written: int) -> list[Buffer]:
    """What is left to write of `buffers` when `written` bytes are done."""
    for position, buffer in enumerate(buffers):
        if written < len(buffer):
            return [memoryview(buffer).cast("B")[written:], *buffers[position + 1 :]]
        written -= len(buffer)
    return []


@contextmanager
def io_errors(doing: str, path: object) -> Iterator[None]:
    """Turn an OSError of the body into a BundleIOError that keeps its number and names path and act."""
    try:
        yield
    except BundleIOError:
        raise
    except FileExistsError:
        raise
    except OSError as error:
        raise as_io_error(error, doing, path) from error


def as_io_error(error: OSError, doing: str, path: object) -> BundleIOError:
    fix = _FIXES.get(error.errno or 0, "")
    reason = error.strerror or str(error)
    name = errno.errorcode.get(error.errno or 0, "no number")
    failed = BundleIOError(f"Cannot {doing} {str(path)!r}: {reason} ({name}).{fix}")
    failed.errno, failed.strerror, failed.filename = error.errno, reason, str(path)
    return failed


_FIXES = {
    errno.ENOSPC: " Free some space; what was committed is kept, and writing goes on when there is room.",
    errno.EDQUOT: " The quota is used up; what was committed is kept.",
    errno.EACCES: " Choose a folder that this user may write, or change its permissions.",
    errno.EPERM: " Choose a folder that this user may write.",
    errno.EROFS: " The file system is read-only: choose another folder.",
    errno.ENOTDIR: " A part of the path is a file: choose a path whose parents are folders.",
    errno.EMFILE: " Too many open files in this process: raise the limit or close some.",
    errno.ENOENT: " It is not there (any more).",
}


class Folder:
    """A directory held open by its descriptor; names are single path parts inside it.

    Raises:
        BundleUnsafePathError: if the path itself is a link or no directory.
        BundleIOError: if it cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], disk: Disk = DISK) -> None:
        self.path: Path = Path(path)
        self.disk = disk
        try:
            self.fd: int = disk.open(self.path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR) and self.path.is_symlink():
                raise BundleUnsafePathError(
                    f"{str(self.path)!r} is a symbolic link. Give the path of the bundle itself."
                ) from error
            raise as_io_error(error, "open the folder", self.path) from error

    def __enter__(self) -> "Folder":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            with suppress(OSError):
                self.disk.close(fd)

    def open(self, name: str, flags: int) -> int:
        _check_name(name, self.path)
        return self.disk.open(name, flags | os.O_NOFOLLOW, at=self.fd)

    def names(self) -> list[str]:
        with io_errors("list", self.path):
            return self.disk.names(self.fd)

    def size(self, name: str) -> int | None:
        """Bytes of a regular file; None when there is no such file."""
        try:
            found = self.disk.status(name, at=self.fd)
        except FileNotFoundError:
            return None
        if not stat.S_ISREG(found.st_mode):
            raise _not_regular(name, self.path)
        return found.st_size

    def read(self, name: str, limit: int) -> bytes:
        """A whole file of at most `limit` bytes."""
        with self.reading(name) as fd, io_errors("read", self.path / name):
            nbytes = os.fstat(fd).st_size
            if nbytes > limit:
                raise BundleLimitError(
                    f"{str(self.path / name)!r} has {nbytes} bytes; at most {limit} are read of such a file."
                )
            return bytes(self.disk.read(fd, nbytes, 0))

    @contextmanager
    def reading(self, name: str) -> Iterator[int]:
        """A descriptor of a regular file in this folder; a pipe or device never blocks and is refused.

        Raises:
            BundleCorruptError: if there is no such file.
            BundleUnsafePathError: if it is anything but a regular file.
        """
        try:
            fd = self.open(name, os.O_RDONLY | os.O_NONBLOCK)
        except FileNotFoundError as error:
            raise BundleCorruptError(f"The bundle {str(self.path)!r} lacks its file {name!r}.") from error
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENXIO):
                raise _not_regular(name, self.path) from error
            raise as_io_error(error, "open", self.path / name) from error
        try:
            if not stat.S_ISREG(os.fstat(fd).st_mode):
                raise _not_regular(name, self.path)
            yield fd
        finally:
            self.disk.close(fd)

    def publish(self, name: str, content: bytes, *, sync: bool = True, sync_folder: bool = True) -> None:
        """Put a whole file in place at once: readers see the old one or the new one, never half of one.

        Args:
            sync: Make the content durable before the name appears.
            sync_folder: Then make the name durable too.
        """
        with self.written(name, content) as fd:
            if sync:
                self.disk.sync(fd)
        self.rename_written(name)
        if sync and sync_folder:
            self.sync()

    @contextmanager
    def written(self, name: str, content: bytes) -> Iterator[int]:
        """The descriptor of a file that holds the content, which `rename_written` gives its name."""
        fd = self.open(f"{name}.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self.disk.write(fd, [content])
            yield fd
        finally:
            self.disk.close(fd)

    def rename_written(self, name: str) -> None:
        """Put a file from `written` in place."""
        self.disk.rename(f"{name}.tmp", name, at=self.fd)

    def unlink(self, name: str) -> None:
        """Remove a file; nothing happens when it is not there."""
        _check_name(name, self.path)
        with suppress(FileNotFoundError):
            self.disk.unlink(name, at=self.fd)

    def sync(self) -> None:
        """Make names durable."""
        _sync_names(self.fd, self.disk)


def sync_folder(path: Path, disk: Disk) -> None:
    """Make the names in a folder durable, whether the path is a link or not."""
    fd = disk.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        _sync_names(fd, disk)
    finally:
        disk.close(fd)


def _sync_names(fd: int, disk: Disk) -> None:
    """Some network file systems cannot sync a folder; then the files alone are durable."""
    try:
        disk.sync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _check_name(name: str, folder: Path) -> None:
    if not name or name in (".", "..") or "/" in name or "\0" in name:
        raise BundleUnsafePathError(f"{name!r} is not a name inside the bundle {str(folder)!r}.")


def _not_regular(name: str, folder: Path) -> BundleUnsafePathError:
    return BundleUnsafePathError(
        f"{name!r} in the bundle {str(folder)!r} is not a regular file; no links, pipes or devices."
    )
