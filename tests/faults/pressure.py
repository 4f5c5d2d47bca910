"""A disk that cannot follow: memory stays within the queue's bound, and every step is written or counted."""

import json
import os
import resource
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Literal, TypeAlias, cast

import torch
from bundles import step
from faults.disks import SlowDisk

from tl_integrations.storage import TlspecSink, load
from tl_integrations.storage.options import WriteOptions

MIB = 1 << 20
Policy: TypeAlias = Literal["block", "drop_newest"]
_POLICIES: tuple[Policy, ...] = ("block", "drop_newest")


def back_pressure(folder: Path, *, megabytes: int, rate: float, queue: int) -> str:
    """Offer `megabytes` MiB to a disk of `rate` MiB/s through a queue of `queue` MiB, under each policy."""
    told = [_asked(folder / f"{policy}.tlspec", policy, megabytes, rate, queue) for policy in _POLICIES]
    return "; ".join(told)


def _asked(path: Path, policy: Policy, megabytes: int, rate: float, queue: int) -> str:
    """In a process of its own, whose memory goes back to the system when a tensor is freed.

    What an allocator keeps for later, up to 12 MiB here, would hide what the queue holds.
    """
    arguments = [str(path), policy, str(megabytes), str(rate), str(queue)]
    command = [sys.executable, "-m", "faults.pressure", *arguments]
    environment = os.environ | {
        "MALLOC_MMAP_THRESHOLD_": str(1 << 16),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def _offer(path: Path, policy: Policy, megabytes: int, rate: float, queue: int) -> str:
    options = WriteOptions(on_full=policy, max_pending_bytes=queue * MIB)
    _write_once(path.with_suffix(".first.tlspec"))
    before, peak, stop = _resident(), [0], threading.Event()
    watcher = threading.Thread(target=_watch, args=(peak, stop))
    watcher.start()
    began = time.monotonic()
    with TlspecSink(path, options=options, disk=SlowDisk(rate * MIB)) as sink:
        for number in range(megabytes):
            sink.write(step(number, {"relu_1_1": torch.full((MIB // 4,), float(number))}))
        offered = time.monotonic() - began
    stop.set()
    watcher.join()
    grown = max(peak[0] - before, 0) / MIB
    counts = json.loads((path / "manifest.json").read_text())["counts"]
    recording = load(path)
    assert len(recording) == counts["records"] == megabytes - counts["dropped_steps"]
    assert counts["dropped_records"] == counts["dropped_steps"]
    assert policy != "block" or counts["dropped_steps"] == 0
    assert policy == "block" or counts["dropped_steps"] > 0
    for found in (recording[0], recording[-1]):
        assert found.step is not None and torch.equal(found.out, torch.full((MIB // 4,), float(found.step)))
    # The queue, 10 % more, the step in hand and the one being offered, and 2 MiB for everything else.
    assert grown <= 1.1 * queue + 2 + 2, (
        f"{policy}: memory grew by {grown:.0f} MiB over a queue of {queue} MiB"
    )
    dropped = counts["dropped_steps"]
    told = f"{megabytes} MiB offered in {offered:.1f} s, {dropped} steps dropped, memory +{grown:.0f} MiB"
    return f"{policy}: {told}"


def _write_once(path: Path) -> None:
    """Libraries take memory of their own when they are first used."""
    with TlspecSink(path) as sink:
        sink.write(step(0, {"relu_1_1": torch.full((MIB // 4,), 0.0)}))


def _watch(peak: list[int], stop: threading.Event) -> None:
    while not stop.wait(0.005):
        peak[0] = max(peak[0], _resident())


def _resident() -> int:
    """Bytes of memory that belong to no file."""
    with open("/proc/self/statm") as statm:
        _, resident, shared, *_ = map(int, statm.read().split())
    return (resident - shared) * resource.getpagesize()


if __name__ == "__main__":
    where, chosen, *numbers = sys.argv[1:]
    print(_offer(Path(where), cast(Policy, chosen), int(numbers[0]), float(numbers[1]), int(numbers[2])))
