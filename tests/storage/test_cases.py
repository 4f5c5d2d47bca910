"""Symptoms that users reported of tools that do this job, none of them here."""

import multiprocessing
from pathlib import Path
from queue import Queue
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tl_integrations as tl
from tl_integrations.capture.protocols import SinkContext
from tl_integrations.errors import BundleError
from tl_integrations.storage.tlspec import line, read_line, read_manifest, write_manifest


class Weighted(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.ones(1 << 18))

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(self.w * x)


class Views(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        a = torch.relu(x)
        return torch.relu(a[:2]).sum() + torch.relu(a.t()).sum() + torch.relu(a).sum()


class Same(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x)


@pytest.mark.parametrize("change", ["fill", "data", "resize"])
def test_a_change_right_after_the_step_does_not_reach_the_disk(tmp_path: Path, change: str) -> None:
    model, x = Weighted(), torch.ones(1)
    recorder = tl.Recorder(
        model, save=tl.where(lambda event: True), storage=tl.to_disk(tmp_path / "a.tlspec")
    )
    with recorder, torch.no_grad():
        out = recorder(x)
        if change == "fill":
            model.w.fill_(7.0)
            out.fill_(7.0)
        elif change == "data":
            model.w.data.mul_(7.0)
            out.data.zero_()
        else:
            out.resize_(0)
    recording = tl.load(tmp_path / "a.tlspec")
    assert len(recording) >= 2 and all((record.out == 1).all() for record in recording)


def test_views_of_one_storage_are_stored_at_their_own_size(tmp_path: Path) -> None:
    x = torch.randn(4, 6)
    tl.record(Views(), x, save=tl.func("relu"), storage=tl.to_disk(tmp_path / "a.tlspec"))
    recording = tl.load(tmp_path / "a.tlspec")
    a = x.relu()
    assert [tuple(r.out.shape) for r in recording] == [(4, 6), (2, 6), (6, 4), (4, 6)]
    assert all(torch.equal(r.out, t) for r, t in zip(recording, (a, a[:2], a.t(), a)))
    shard = tmp_path / "a.tlspec" / "shard-00001.safetensors"
    assert shard.stat().st_size < 84 * 4 + 1000


def test_a_small_view_of_a_large_storage_stores_the_view(tmp_path: Path) -> None:
    class Slice(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(x)[:2]

    tl.record(
        Slice(), torch.ones(1 << 16), save=tl.func("__getitem__"), storage=tl.to_disk(tmp_path / "a.tlspec")
    )
    (only,) = tl.load(tmp_path / "a.tlspec")
    assert only.out.shape == (2,)
    assert (tmp_path / "a.tlspec" / "shard-00001.safetensors").stat().st_size < 1000


def _write(path: str, answers: "Queue[str]") -> None:
    try:
        tl.record(nn.Linear(2, 2), torch.ones(1, 2), save=tl.func("linear"), storage=tl.to_disk(path))
        answers.put("ok")
    except Exception as error:
        answers.put(type(error).__name__)


def test_of_two_processes_on_one_path_one_is_told(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    answers: Any = context.Queue()
    path = str(tmp_path / "a.tlspec")
    processes = [context.Process(target=_write, args=(path, answers)) for _ in range(2)]
    for process in processes:
        process.start()
    told = [answers.get(timeout=120) for _ in processes]
    for process in processes:
        process.join()
    assert told.count("ok") == 1 and set(told) <= {"ok", "BundleExistsError", "BundleBusyError"}
    assert len(tl.load(path)) == 1


def test_reading_straight_after_a_record_sees_all_of_it(tmp_path: Path) -> None:
    for number in range(20):
        path = tmp_path / f"{number}.tlspec"
        tl.record(nn.Linear(64, 64), torch.randn(512, 64), save=tl.func("linear"), storage=tl.to_disk(path))
        assert tl.load(path)[0].out.shape == (512, 64)


def test_bfloat16_stays_bfloat16(tmp_path: Path) -> None:
    net, x = nn.Linear(4, 4), torch.randn(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        tl.record(net, x, save=tl.func("linear"), storage=tl.to_disk(tmp_path / "a.tlspec"))
        expected = net(x)
    (only,) = tl.load(tmp_path / "a.tlspec")
    assert only.out.dtype is torch.bfloat16 and torch.equal(only.out, expected)


def test_a_config_in_a_bundle_is_never_built_by_reading(tmp_path: Path) -> None:
    """Case C59."""
    target, path = tmp_path / "made", tmp_path / "a.tlspec"
    config = {"model": {"_target_": "builtins.open", "file": str(target), "mode": "w"}}
    with tl.to_disk(path).open(SinkContext(config=config)):
        pass
    for reader in (tl.load, tl.recover):
        recording = reader(path)
        assert recording.config == config and type(recording.config["model"]) is dict
        repr(recording)
    assert not target.exists()


@pytest.mark.parametrize("lie", [{"nbytes": 1 << 62}, {"nbytes": -1}, {"nbytes": 1.5}, {"name": "x" * 300}])
def test_a_manifest_that_lies_about_sizes_is_refused(tmp_path: Path, lie: dict[str, Any]) -> None:
    path = tmp_path / "a.tlspec"
    tl.record(Same(), torch.ones(4), save=tl.func("relu"), storage=tl.to_disk(path))
    manifest = read_manifest((path / "manifest.json").read_bytes(), "it")
    manifest["shards"][0] |= lie
    (path / "manifest.json").write_bytes(write_manifest(manifest))
    with pytest.raises(BundleError):
        tl.load(path)


@pytest.mark.parametrize("shape", [[1000, 1000], [-4], [1 << 63], [4.0], "4", [[4]], None, [0, 1 << 70]])
def test_a_line_that_lies_about_its_shape_costs_that_record_alone(tmp_path: Path, shape: Any) -> None:
    """Case C47."""
    path = tmp_path / "a.tlspec"
    with tl.Recorder(Same(), save=tl.func("relu"), storage=tl.to_disk(path)) as recorder:
        for value in range(3):
            recorder(torch.full((4,), float(value)))
    lines = (path / "index.jsonl").read_bytes().splitlines(keepends=True)
    at = [number for number, text in enumerate(lines) if b'"kind":"record"' in text][1]
    lines[at] = line(read_line(lines[at].rstrip(), "it") | {"shape": shape}).encode()
    (path / "index.jsonl").write_bytes(b"".join(lines))
    found = tl.recover(path)
    assert [float(r.out[0]) for r in found] == [0.0, 2.0] and found.recovery.lost == 1


def test_a_whole_graph_comes_back_with_the_records(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    recording = tl.record(
        net, torch.randn(2, 3), save=tl.func("relu"), storage=tl.to_disk(tmp_path / "a.tlspec")
    )
    loaded = tl.load(tmp_path / "a.tlspec")
    assert loaded["relu_1_2"].label == "relu_1_2"
    assert list(loaded.graphs.values()) == list(recording.graphs.values()) and len(loaded.graphs) == 1
    assert loaded.to_trace() == recording.to_trace() or str(loaded.to_trace()) == str(recording.to_trace())


def test_a_saved_trace_loads_back_with_its_graph_and_tensors(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    trace = tl.trace(net, torch.randn(2, 3))
    tl.save(trace, tmp_path / "t.tlspec")
    back = tl.load(tmp_path / "t.tlspec").to_trace()
    assert [op.label for op in back] == [op.label for op in trace]
    assert torch.equal(back["relu_1_2"].out, trace["relu_1_2"].out)


def test_a_recording_of_several_steps_saves_to_an_equal_bundle(tmp_path: Path) -> None:
    with tl.Recorder(Same(), save=tl.func("relu")) as recorder:
        for value in range(3):
            recorder(torch.full((4,), float(value)))
    tl.save(recorder.recording, tmp_path / "a.tlspec")
    loaded = tl.load(tmp_path / "a.tlspec")
    assert [r.run_index for r in loaded] == [1, 2, 3]
    assert all(torch.equal(a.out, b.out) for a, b in zip(loaded, recorder.recording))
