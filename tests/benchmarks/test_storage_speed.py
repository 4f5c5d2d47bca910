"""What a bundle costs: beside raw writes, beside the training step, beside torchlens, and to read."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from bundles import record, step
from interleaving import Timing, assert_ratio, interleave, is_measuring, table, timing
from reference_models import made
from torch import nn

import tl_integrations as tl
from tl_integrations.capture.events import Moment
from tl_integrations.storage import TlspecSink
from tl_integrations.storage.options import WriteOptions

TORCHLENS = """
import json, shutil, sys, time, warnings
sys.path[:0] = json.loads(sys.argv[2])
warnings.simplefilter("ignore")
import torch, torchlens
from reference_models import made
torch.set_num_threads(1)
model, x = made("mlp20")
times = []
for round in range(int(sys.argv[3])):
    path = f"{sys.argv[1]}/{round}.tlspec"
    began = time.perf_counter()
    torchlens.record(model, x, save=torchlens.func("relu"), storage=torchlens.to_disk(path))
    times.append(time.perf_counter() - began)
    shutil.rmtree(path)
print(sorted(times)[len(times) // 2])
"""


class Raw:
    """Bytes by `os.write`, and nothing else: a new file after each 256 MiB, as a bundle has them."""

    def __init__(self, folder: Path, contents: list[bytes]) -> None:
        self.path, self.contents, self.fd = folder / "raw", contents, -1
        self.written = SHARD

    def write(self) -> None:
        for content in self.contents:
            os.write(self.fd, content)

    def make_room(self) -> None:
        """Remove a full file and begin the next."""
        self.written += sum(map(len, self.contents))
        if self.written >= SHARD:
            self.close()
            self.fd = os.open(self.path, os.O_WRONLY | os.O_CREAT)
            self.written = 0

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.path.unlink()


SHARD = 256 << 20


@pytest.mark.parametrize("size", [16_384, 1_048_576], ids=["64 KiB", "4 MiB"])
def test_writing_costs_little_beside_raw_writes(
    tmp_path: Path, request: pytest.FixtureRequest, size: int
) -> None:
    """33 MB a round, many small tensors or few large ones.

    Both sides write new files and remove them when they are full: memory that the system hands out for the
    first time costs several times as much as memory that a removed file gave back, on some machines five.
    """
    count, rounds = (8_388_608 // size, 21) if is_measuring(request) else (10, 2)
    tensors = {f"relu_{n}_{n}": torch.randn(size) for n in range(count)}
    raw = Raw(tmp_path, [tensor.numpy().tobytes() for tensor in tensors.values()])
    sink = TlspecSink(tmp_path / "run.tlspec", options=WriteOptions(max_pending_bytes=1 << 30))
    captured = step(0, tensors)

    def ours() -> None:
        sink.write(captured)
        sink.flush()

    def measure() -> tuple[Timing, Timing]:
        """Of the raw writes, and of the bundle's; the medians leave out the rounds that end a shard."""
        times: dict[str, list[float]] = {"os.write": [], "bundle": []}
        for number in range(rounds):
            raw.make_room()
            for full in sink.path.glob("shard-*.safetensors"):
                full.unlink()
            for name, case in (("os.write", raw.write), ("bundle", ours))[:: 1 if number % 2 else -1]:
                began = time.perf_counter()
                case()
                times[name].append(time.perf_counter() - began)
        return timing(times["os.write"], times["os.write"]), timing(times["bundle"], times["os.write"])

    try:
        _fill_and_free(tmp_path / "pool", 1 << 30 if is_measuring(request) else 1 << 20)
        timings = dict(zip(("os.write", "bundle"), measure(), strict=True))
        if is_measuring(request):
            print(table(f"{count} x {size >> 8} KiB", timings))
            assert_ratio(lambda: measure()[1].ratio, 1.3)
    finally:
        raw.close()
        sink.close()


def _fill_and_free(path: Path, nbytes: int) -> None:
    """Make the system hold that much memory which was in use before."""
    with path.open("wb") as file:
        for _ in range(nbytes >> 20):
            file.write(bytes(1 << 20))
    path.unlink()


def test_recording_to_disk_is_far_faster_than_torchlens(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    model, x = made("mlp20")
    rounds = 21 if is_measuring(request) else 2
    numbers = iter(range(10_000))

    def ours() -> None:
        disk = tl.to_disk(tmp_path / f"ours-{next(numbers)}.tlspec")
        tl.record(model, x, save=tl.func("relu"), storage=disk, graph=False)

    cases: dict[str, Callable[[], object]] = {"plain": lambda: model(x), "to disk": ours}
    timings = interleave(cases, rounds=rounds, warmup=1)
    if not is_measuring(request):
        return
    print(table("mlp20", timings))
    paths = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
    command = [sys.executable, "-c", TORCHLENS, str(tmp_path), json.dumps(paths), "11"]
    theirs = float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    print(f"torchlens {theirs * 1e3:.1f} ms, {theirs / timings['to disk'].seconds:.1f} times ours")
    assert theirs / timings["to disk"].seconds >= 10


class Convolutions(nn.Module):
    """Eight layers whose outputs are 33 MB together."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Conv2d(3 if n == 0 else 32, 32, 3, 1, 1) for n in range(8))
        self.head = nn.Linear(32, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers:
            x = layer(x).relu()
        return self.head(x.mean((2, 3)))


def test_a_captured_training_step_is_hardly_slower(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    batch, rounds = (32, 21) if is_measuring(request) else (1, 2)
    model = Convolutions()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    x, y = torch.randn(batch, 3, 32, 32), torch.randint(0, 10, (batch,))
    recorder = tl.Recorder(model, save="layers.*", graph=False)
    sink = TlspecSink(tmp_path / "run.tlspec")
    numbers = iter(range(10_000))

    def train() -> None:
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    def captured() -> None:
        with recorder.watch(Moment(step=next(numbers))):
            loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        sink.write(recorder.drain())
        optimizer.step()

    cases: dict[str, Callable[[], object]] = {"plain": train, "captured": captured}
    with sink:
        if not is_measuring(request):
            interleave(cases, rounds=rounds, warmup=0)
            return
        print(table("conv8 step, 33 MB", interleave(cases, rounds=rounds)))
        assert_ratio(lambda: interleave(cases, rounds=rounds)["captured"].ratio, 1.10)


def test_one_tensor_of_many_is_read_at_once(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    steps = 1000 if is_measuring(request) else 20
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        for number in range(steps):
            moment = Moment(step=number)
            tensors = [record(torch.randn(256), f"relu_{k}_{k}", moment=moment) for k in range(10)]
            sink.write(step(number, tensors))
    recording = tl.load(tmp_path / "run.tlspec")
    times = []
    for number in range(0, steps, max(steps // 50, 1)):
        began = time.perf_counter()
        _ = recording.at(number)["relu_7_7"].out
        times.append(time.perf_counter() - began)
    median = sorted(times)[len(times) // 2]
    print(f"one tensor of {steps * 10} records: {median * 1e3:.2f} ms")
    if is_measuring(request):
        assert median < 0.005
