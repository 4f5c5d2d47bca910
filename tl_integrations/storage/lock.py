"""One writer per bundle: a lock file that the system releases when its holder dies.

`flock` decides; the file's text only says who holds it. Where a file system has no `flock`, making the file
decides, and a lock whose process is gone (same machine, same boot) is broken. Across machines without `flock`
a lock left by a crash has to be removed by hand; the error says so.
"""

import errno
import fcntl
import os
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path

from tl_integrations.errors import BundleBusyError, BundleCorruptError
from tl_integrations.storage.filesystem import Folder
from tl_integrations.storage.strict_json import dump, parse
from tl_integrations.storage.tlspec import LOCK

_NO_FLOCK = (errno.ENOTSUP, errno.ENOLCK, errno.ENOSYS)


class Lock:
    """Held from construction to `release`.

    Raises:
        BundleBusyError: if another writer holds it.
    """

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._fd = self._take()
        try:
            # Only where it must be: ext4 waits for the disk when a file that was cut to nothing is closed.
            if os.fstat(self._fd).st_size:
                folder.disk.truncate(self._fd, 0)
            folder.disk.pwrite(self._fd, _identity(), 0)
        except BaseException:
            self.release()
            raise

    def release(self) -> None:
        """Remove the file and let go; a second call does nothing."""
        if self._fd >= 0:
            with suppress(OSError):
                self._folder.unlink(LOCK)
            self.forget()

    def forget(self) -> None:
        """Close this process's copy and leave the file: what a forked child does."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            with suppress(OSError):
                self._folder.disk.close(fd)

    def _take(self) -> int:
        while True:
            fd = self._folder.open(LOCK, os.O_RDWR | os.O_CREAT)
            try:
                if self._locked(fd) and self._still_there(fd):
                    return fd
            except BaseException:
                self._folder.disk.close(fd)
                raise
            self._folder.disk.close(fd)

    def _locked(self, fd: int) -> bool:
        try:
            self._folder.disk.call("flock", fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError as error:
            raise _busy(self._folder) from error
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
        if _holder_lives(self._folder):
            raise _busy(self._folder)
        return True

    def _still_there(self, fd: int) -> bool:
        """False when the file was removed between opening and locking: then the lock is of nothing."""
        with suppress(FileNotFoundError):
            return os.path.samestat(os.fstat(fd), self._folder.disk.status(LOCK, at=self._folder.fd))
        return False


def is_held(folder: Folder) -> bool:
    """Whether some process writes the bundle now; nothing is created or changed."""
    try:
        fd = folder.open(LOCK, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        return False
    except BlockingIOError:
        return True
    except OSError:
        return _holder_lives(folder)
    finally:
        folder.disk.close(fd)


def _identity() -> bytes:
    return (dump({"pid": os.getpid(), "host": socket.gethostname(), "boot": _boot_id()}) + "\n").encode()


@cache
def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _holder(folder: Folder) -> dict[str, object]:
    try:
        found = parse(folder.read(LOCK, 4096), "the lock")
    except (BundleCorruptError, OSError):
        return {}
    return found if isinstance(found, dict) else {}


def _holder_lives(folder: Folder) -> bool:
    holder = _holder(folder)
    pid = holder.get("pid")
    if holder.get("host") != socket.gethostname() or type(pid) is not int or pid <= 0:
        return bool(holder)
    if holder.get("boot") != _boot_id():
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        pass
    return pid != os.getpid()


def _busy(folder: Folder) -> BundleBusyError:
    holder = _holder(folder)
    who = f"process {holder.get('pid')} on {holder.get('host')}" if holder else "another process"
    return BundleBusyError(
        f"{str(folder.path)!r} is being written by {who}. Wait for it, or choose another path. "
        f"If that process is gone, remove the file {LOCK!r} in the bundle."
    )
