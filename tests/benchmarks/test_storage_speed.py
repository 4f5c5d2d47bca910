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
from interleaving import assert_ratio, interleave, is_measuring, table
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


def test_writing_costs_little_beside_raw_writes(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    count, rounds = (500, 21) if is_measuring(request) else (10, 2)
    tensors = {f"relu_{n}_{n}": torch.randn(16_384) for n in range(count)}
    contents = [tensor.numpy().tobytes() for tensor in tensors.values()]
    sink = TlspecSink(tmp_path / "run.tlspec", options=WriteOptions(max_pending_bytes=1 << 30))
    fd = os.open(tmp_path / "raw", os.O_WRONLY | os.O_CREAT)
    captured = step(0, tensors)

    def raw() -> None:
        # Both files start again after each shard's worth: the disk would fill up otherwise.
        if os.lseek(fd, 0, os.SEEK_CUR) > 256 << 20:
            os.ftruncate(fd, 0)
            os.lseek(fd, 0, os.SEEK_SET)
        for content in contents:
            os.write(fd, content)

    def ours() -> None:
        sink.write(captured)
        sink.flush()

    cases: dict[str, Callable[[], object]] = {"os.write": raw, "bundle": ours}
    try:
        if not is_measuring(request):
            interleave(cases, rounds=rounds, warmup=0)
            return
        timings = interleave(cases, rounds=rounds)
        print(table("500 x 64 KiB", timings))
        assert_ratio(lambda: interleave(cases, rounds=rounds)["bundle"].ratio, 1.3)
    finally:
        os.close(fd)
        sink.close()


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
