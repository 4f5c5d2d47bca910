"""A very long run: memory flat, the last appends as fast as the first, few files, opened in no time."""

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import torch
from bundles import record, step

from tl_integrations.capture.events import Moment
from tl_integrations.storage import TlspecSink

_OPEN = """
import sys, time
import torch
def peak_resident():
    # Not what getrusage says: that begins with the peak of the process that started this one.
    with open("/proc/self/status") as status:
        return next(int(line.split()[1]) for line in status if line.startswith("VmHWM"))
before = peak_resident()
from tl_integrations import storage as tl
began = time.perf_counter()
recording = tl.load(sys.argv[1])
opened = time.perf_counter() - began
peak = peak_resident()
last = len(recording) - 1
found = recording[last]
assert found.step == last and torch.equal(found.out, torch.full((16,), float(last)))
began = time.perf_counter()
middle = recording.at(last // 2)["relu_1_1"].out
looked_up = time.perf_counter() - began
assert torch.equal(middle, torch.full((16,), float(last // 2)))
print(len(recording), opened, looked_up, peak * 1024, (peak - before) * 1024)
"""


def long_run(folder: Path, steps: int) -> str:
    """Write steps of one small record with statistics, then open the bundle in a fresh process."""
    path, warm = folder / "long.tlspec", min(10_000, steps // 10)
    tail = max(steps // 100, 100)
    times: list[float] = []
    resident = 0
    began = time.monotonic()
    statistics = {"mean": 0.5, "std": 1.0, "absmax": 2.0, "zero_fraction": 0.0, "nonfinite_fraction": 0.0}
    with TlspecSink(path) as sink:
        for number in range(steps):
            tensor = torch.full((16,), float(number))
            one = record(tensor, "relu_1_1", moment=Moment(step=number), statistics=statistics)
            if number < tail or number >= steps - tail:
                sink.flush()
                start = time.perf_counter()
                sink.write(step(number, [one]))
                sink.flush()
                times.append(time.perf_counter() - start)
            else:
                sink.write(step(number, [one]))
            if number == warm:
                sink.flush()
                resident = _resident()
        sink.flush()
        drift = _resident() - resident
    seconds = time.monotonic() - began
    first, last = _p99(times[:tail]), _p99(times[-tail:])
    files, nbytes = len(os.listdir(path)), sum(f.stat().st_size for f in path.iterdir())
    count, opened, looked_up, peak, own = _open(path)
    assert count == steps
    assert drift < 20 << 20, f"memory grew by {drift >> 20} MiB after step {warm}"
    assert files < 2000
    assert opened < 2.0, f"opening took {opened:.2f} s"
    # Beyond what torch takes by itself: that differs by 250 MiB between its builds.
    assert own < 60 << 20, f"opening it took {own >> 20} MiB"
    # A torch that takes most of the 300 MB before anything is opened says nothing of a bundle.
    assert peak < 300e6 or peak - own > 230e6, f"the process that opened it took {peak >> 20} MiB"
    return (
        f"{steps} steps in {seconds:.0f} s: memory +{drift / 2**20:.1f} MiB after step {warm}, commit p99 "
        f"{first * 1e6:.0f} us first, {last * 1e6:.0f} us last 1 % ({last / first:.2f}x), {files} files, "
        f"{nbytes / 2**20:.0f} MiB; opened in {opened:.2f} s, process peak {peak / 2**20:.0f} MiB "
        f"({own / 2**20:.0f} MiB over torch alone), one step looked up and read in {looked_up * 1e3:.1f} ms"
    )


def _open(path: Path) -> tuple[int, float, float, int, int]:
    done = subprocess.run(
        [sys.executable, "-c", _OPEN, str(path)], capture_output=True, text=True, check=True
    )
    count, opened, looked_up, peak, own = done.stdout.split()
    return int(count), float(opened), float(looked_up), int(peak), int(own)


def _p99(times: list[float]) -> float:
    return sorted(times)[int(len(times) * 0.99)]


def _resident() -> int:
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * resource.getpagesize()
