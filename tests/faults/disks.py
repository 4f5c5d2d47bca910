"""Disks that fail at the k-th call, kill the process there, lose what was not synced, or are slow."""

import errno
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tl_integrations.storage.filesystem import Disk

CHANGING = frozenset({"open", "write", "truncate", "fsync", "rename", "unlink", "mkdir", "rmdir", "flock"})
"""Calls that change the disk, or decide whether it may be changed."""


class CountingDisk(Disk):
    """Counts the calls that matter."""

    def __init__(self, watched: frozenset[str] = CHANGING) -> None:
        self.watched, self.calls = watched, 0

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if name in self.watched:
            self.calls += 1
            return self.at(self.calls, name, function, *args, **kwargs)
        return function(*args, **kwargs)

    def at(self, number: int, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)


class FailingDisk(CountingDisk):
    """Raises an error at the k-th call, once; `"short"` writes only a part there."""

    def __init__(self, k: int, error: int | str, watched: frozenset[str] = CHANGING) -> None:
        super().__init__(watched)
        self.k, self.error = k, error
        self.hit = ""

    def at(self, number: int, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if number != self.k:
            return function(*args, **kwargs)
        self.hit = name
        if self.error == "short":
            return _write_half(function, *args) if name == "write" else function(*args, **kwargs)
        assert isinstance(self.error, int)
        if name == "write" and self.error == errno.ENOSPC:
            # A full disk takes what still fits before it fails.
            _write_half(function, *args)
        raise OSError(self.error, os.strerror(self.error))


class KillingDisk(CountingDisk):
    """Kills the process at the k-th call: before it, in the middle of a write, or after it."""

    def __init__(self, k: int, moment: str) -> None:
        super().__init__()
        self.k, self.moment = k, moment

    def at(self, number: int, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if number != self.k:
            return function(*args, **kwargs)
        if self.moment == "within" and name == "write":
            _write_half(function, *args)
        elif self.moment == "after":
            function(*args, **kwargs)
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("still alive")


class SlowDisk(Disk):
    """Writes at so many bytes per second."""

    def __init__(self, bytes_per_second: float) -> None:
        self.rate = bytes_per_second

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        if name == "write":
            time.sleep(result / self.rate)
        return result


def _write_half(function: Callable[..., Any], fd: int, content: Any, *offset: int) -> Any:
    if isinstance(content, list):
        first = memoryview(content[0]).cast("B")
        return function(fd, [first[: max(len(first) // 2, 1)]])
    return function(fd, content[: max(len(content) // 2, 1)], *offset)


@dataclass
class Inode:
    """A file of the model: what is on the platter, and what is only in memory."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[tuple[str, int, bytes]] = field(default_factory=list)

    def sync(self) -> None:
        for act in self.pending:
            _apply(self.durable, *act)
        self.pending.clear()


def _apply(content: bytearray, kind: str, offset: int, what: bytes) -> None:
    if kind == "truncate":
        del content[offset:]
        content.extend(bytes(offset - len(content)))
        return
    content.extend(bytes(max(offset + len(what) - len(content), 0)))
    content[offset : offset + len(what)] = what


class PowerModel(Disk):
    """A journal of all that happened to one folder, to be cut anywhere and replayed as a bad disk would.

    What was not synced may be missing, whole, torn at 512 bytes, or there without what came before it; names
    are durable only once the folder was synced.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.journal: list[tuple[Any, ...]] = []
        self.parent_synced = False
        self._names: dict[int, str] = {}
        self._positions: dict[int, int] = {}
        self._folder_fds: set[int] = set()

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        result = function(*args, **kwargs)
        getattr(self, f"_{name}", lambda *a, **k: None)(result, *args, **kwargs)
        return result

    def _open(self, fd: int, path: Any, flags: int, mode: int, dir_fd: int | None = None) -> None:
        if dir_fd is None:
            if Path(path) == self.folder:
                self._folder_fds.add(fd)
            elif Path(path) == self.folder.parent:
                self._names[fd] = ".."
            return
        self._names[fd], self._positions[fd] = path, 0
        if flags & os.O_CREAT:
            self.journal.append(("create", path, bool(flags & os.O_TRUNC)))

    def _close(self, result: None, fd: int) -> None:
        self._names.pop(fd, None)
        self._folder_fds.discard(fd)

    def _seek(self, result: int, fd: int, offset: int, whence: int) -> None:
        self._positions[fd] = offset

    def _write(self, written: int, fd: int, content: Any, offset: int | None = None) -> None:
        whole = b"".join(content) if isinstance(content, list) else bytes(content)
        place = self._positions[fd] if offset is None else offset
        self.journal.append(("write", self._names[fd], place, bytes(whole[:written])))
        if offset is None:
            self._positions[fd] = place + written

    def _truncate(self, result: None, fd: int, nbytes: int) -> None:
        self.journal.append(("truncate", self._names[fd], nbytes))

    def _fsync(self, result: None, fd: int) -> None:
        if fd in self._folder_fds:
            self.journal.append(("sync_folder",))
        elif self._names.get(fd) == "..":
            self.parent_synced = True
        else:
            self.journal.append(("sync", self._names[fd]))

    def _rename(
        self, result: None, source: str, target: str, src_dir_fd: Any = None, dst_dir_fd: Any = None
    ) -> None:
        self.journal.append(("rename", source, target))
        for fd, name in self._names.items():
            if name == source:
                self._names[fd] = target

    def _unlink(self, result: None, name: str, dir_fd: int | None = None) -> None:
        self.journal.append(("unlink", name))

    def replay(self, cut: int, chance: random.Random, target: Path) -> None:
        """Make `target` the folder as the disk may hold it after the power went at entry `cut`."""
        names: dict[str, Inode] = {}
        durable: dict[str, Inode] = {}
        pending: list[tuple[str, str, Inode | None]] = []
        for entry in self.journal[:cut]:
            self._step(entry, names, durable, pending)
        for kind, name, inode in pending:
            if chance.random() < 0.5:
                _change(durable, kind, name, inode)
        target.mkdir()
        for name, inode in durable.items():
            (target / name).write_bytes(_survivor(inode, chance))

    def _step(
        self,
        entry: tuple[Any, ...],
        names: dict[str, Inode],
        durable: dict[str, Inode],
        pending: list[tuple[str, str, Inode | None]],
    ) -> None:
        kind, *rest = entry
        if kind == "create":
            name, cleared = rest
            if name not in names:
                names[name] = Inode()
                pending.append(("set", name, names[name]))
            elif cleared:
                names[name].pending.append(("truncate", 0, b""))
        elif kind == "write":
            names[rest[0]].pending.append(("write", rest[1], rest[2]))
        elif kind == "truncate":
            names[rest[0]].pending.append(("truncate", rest[1], b""))
        elif kind == "sync":
            names[rest[0]].sync()
        elif kind == "rename":
            source, target = rest
            names[target] = names.pop(source)
            # One act: after a cut either both halves of a rename are there or none.
            pending.append((f"rename:{source}", target, names[target]))
        elif kind == "unlink":
            names.pop(rest[0], None)
            pending.append(("unlink", rest[0], None))
        elif kind == "sync_folder":
            for act in pending:
                _change(durable, *act)
            pending.clear()


def _change(durable: dict[str, Inode], kind: str, name: str, inode: Inode | None) -> None:
    if kind == "unlink":
        durable.pop(name, None)
        return
    assert inode is not None
    durable[name] = inode
    if kind.startswith("rename:"):
        durable.pop(kind.partition(":")[2], None)


def _survivor(inode: Inode, chance: random.Random) -> bytes:
    """The file's bytes after a cut: each unsynced write whole, missing, or torn at a sector."""
    content = bytearray(inode.durable)
    for kind, offset, what in inode.pending:
        fate = chance.random()
        if fate < 0.4:
            _apply(content, kind, offset, what)
        elif fate < 0.7 and kind == "write":
            sectors = chance.randrange(len(what) // 512 + 1)
            _apply(content, kind, offset, what[: 512 * sectors])
        elif fate < 0.8 and kind == "write":
            _apply(content, kind, offset, bytes(len(what)))
    return bytes(content)
