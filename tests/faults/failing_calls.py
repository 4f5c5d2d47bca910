"""Every system call of a short run fails once, in every way: a typed error, nothing lost or left open."""

import errno
import os
import shutil
import threading
import time
from pathlib import Path

from faults.disks import CountingDisk, FailingDisk
from faults.oracle import captured, check

from tl_integrations.errors import BundleError
from tl_integrations.storage import TlspecSink, load, recover
from tl_integrations.storage.options import WriteOptions

ERRORS = (errno.ENOSPC, errno.EIO, errno.EACCES, errno.EDQUOT, errno.EMFILE, errno.EINTR, "short")
STEPS = 10


def failing_calls(folder: Path, every: int = 1) -> str:
    """Fail the k-th call for every k, error and durability."""
    runs = failures = compared = 0
    for durability in ("process", "power"):
        options = WriteOptions(durability=durability, shard_bytes=2000)  # type: ignore[arg-type]
        counting = CountingDisk()
        _run(folder / f"whole-{durability}.tlspec", options, counting)
        for error in ERRORS:
            for k in range(1, counting.calls + 1, every):
                path = folder / f"{durability}-{error}-{k}.tlspec"
                raised, found = _fail(path, options, FailingDisk(k, error))
                runs, failures, compared = runs + 1, failures + raised, compared + found
                shutil.rmtree(path, ignore_errors=True)
                if path.exists():
                    path.unlink()
    return f"{runs} failing calls: {failures} typed errors, {compared} records compared, 0 lost, 0 left open"


def _fail(path: Path, options: WriteOptions, disk: FailingDisk) -> tuple[int, int]:
    fds, threads, began = _open_files(), threading.active_count(), time.monotonic()
    committed, raised = _run(path, options, disk)
    assert time.monotonic() - began < 10, "it hung"
    assert (
        raised
        or disk.error in (errno.EINTR, "short")
        or disk.hit in ("unlink", "flock", "rmdir", "fsync", "")
        or (disk.hit == "open")
    ), f"{disk.hit} failed without a word"
    assert threading.active_count() == threads, "a thread is left"
    assert _open_files() == fds, f"open files are left after {disk.hit}"
    if not path.exists():
        assert not committed
        return raised, 0
    try:
        return raised, check(load(path), committed)
    except BundleError:
        pass
    try:
        return raised, check(recover(path), committed)
    except BundleError:
        assert not committed, f"{committed} committed, then not even recovered"
        return raised, 0


def _run(path: Path, options: WriteOptions, disk: CountingDisk) -> tuple[list[int], int]:
    """Write the run; after an error go on with the next step. Returns: committed steps, errors."""
    committed, raised = [], 0
    try:
        sink = TlspecSink(path, options=options, disk=disk)
    except BundleError:
        return [], 1
    for number in range(STEPS):
        try:
            sink.write(captured(number))
            sink.flush()
            committed.append(number)
        except BundleError:
            raised += 1
    try:
        sink.close()
    except BundleError:
        raised += 1
    return committed, raised


def _open_files() -> int:
    return len(os.listdir("/proc/self/fd"))
