"""The same tensors written and read by safetensors, torch.save and torchlens."""

import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
import torch
from bundles import record, step
from file_ways import Way, fill_and_free, ways
from interleaving import interleave, is_measuring, timing
from other_libraries import hooked
from reference_models import made
from results import Report
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

import tl_integrations as tl
from tl_integrations.capture.events import Moment
from tl_integrations.storage import TlspecSink

SECTION = "storage"


def written(found: Mapping[str, Way], rounds: int) -> dict[str, list[float]]:
    """Seconds of each way, in turn."""
    times: dict[str, list[float]] = {name: [] for name in found}
    for number in range(rounds):
        for name in list(found)[:: 1 if number % 2 else -1]:
            found[name].make_room()
            began = time.perf_counter()
            found[name].write()
            times[name].append(time.perf_counter() - began)
    return times


@pytest.mark.parametrize("size", [16_384, 1_048_576], ids=["64 KiB", "4 MiB"])
def test_other_formats_for_the_same_tensors(
    tmp_path: Path, request: pytest.FixtureRequest, report: Report, size: int
) -> None:
    measuring = is_measuring(request)
    count = 8_388_608 // size if measuring else 2
    tensors = {f"relu_{n}_{n}": torch.randn(size) for n in range(count)}
    found = ways(tmp_path, tensors)
    try:
        fill_and_free(tmp_path / "pool", 1 << 30 if measuring else 1 << 20)
        times = written(found, 15 if measuring else 2)
        if not measuring:
            assert load_file(tmp_path / "step.safetensors").keys() == tensors.keys()
            assert torch.load(tmp_path / "step.pt").keys() == tensors.keys()
    finally:
        for way in found.values():
            way.close()
    timings = {name: timing(own, times["os.write"]) for name, own in times.items()}
    case = f"{count} x {'64 KiB' if size < 1 << 20 else '4 MiB'}"
    report.timings("33 MB of tensors by other libraries, ratios to os.write", case, timings)


def test_a_forward_to_disk(tmp_path: Path, request: pytest.FixtureRequest, report: Report) -> None:
    """What people write by hand against a bundle of one call, finished and synced."""
    model, x = made("mlp20")
    names = [f"layers.{k}" for k in range(20)]
    numbers = iter(range(10_000))

    def by_hand(save: Callable[[dict[str, Tensor], Path], object]) -> None:
        save(dict(zip(names, hooked(model, names, x), strict=True)), tmp_path / f"{next(numbers)}.hand")

    def ours() -> None:
        disk = tl.to_disk(tmp_path / f"{next(numbers)}.tlspec")
        tl.record(model, x, save="layers.*", storage=disk, graph=False)

    cases: dict[str, Callable[[], object]] = {
        "plain": lambda: model(x),
        "hooks, safetensors": lambda: by_hand(save_file),
        "hooks, torch.save": lambda: by_hand(torch.save),
        "to disk": ours,
    }
    timings = interleave(cases, rounds=15 if is_measuring(request) else 2, warmup=1)
    report.timings("One forward to disk, ratios to the plain forward", "mlp20", timings)
    assert tl.load(next(tmp_path.glob("*.tlspec")))["layers.3"].out.shape == (64, 256)


def test_one_tensor_out_of_many(tmp_path: Path, request: pytest.FixtureRequest, report: Report) -> None:
    """10,000 tensors in 1,000 steps: a bundle, a safetensors file per step, one torch.save of all."""
    steps = 1_000 if is_measuring(request) else 5
    rows = [{f"relu_{k}_{k}": torch.randn(256) for k in range(10)} for _ in range(steps)]
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        for number, tensors in enumerate(rows):
            moment = Moment(step=number)
            sink.write(step(number, [record(kept, name, moment=moment) for name, kept in tensors.items()]))
            save_file(tensors, tmp_path / f"{number}.safetensors")
    torch.save(rows, tmp_path / "all.pt")
    recording, asked = tl.load(tmp_path / "run.tlspec"), [0]

    def next_step() -> int:
        asked[0] = (asked[0] + 7) % steps
        return asked[0]

    def by_safetensors() -> Tensor:
        with safe_open(tmp_path / f"{next_step()}.safetensors", "pt") as file:
            found: Tensor = file.get_tensor("relu_7_7")
        return found

    cases: dict[str, Callable[[], object]] = {
        "recording already open": lambda: recording.at(next_step())["relu_7_7"].out,
        "opened for it": lambda: tl.load(tmp_path / "run.tlspec").at(next_step())["relu_7_7"].out,
        "safetensors, a file per step": by_safetensors,
        "torch.load of all, memory-mapped": lambda: torch.load(tmp_path / "all.pt", mmap=True)[next_step()][
            "relu_7_7"
        ],
    }
    timings = interleave(cases, rounds=5 if is_measuring(request) else 2, warmup=1)
    report.timings("One tensor read back, ratios to an open recording", f"1 of {steps * 10:,}", timings)
