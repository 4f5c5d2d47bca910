"""The bridge to the real TorchLens, which patches torch for a whole process: it gets processes of its own."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from bundles import record, step
from torch import nn

import tl_integrations as tl
from tl_integrations.capture.record_tables import MemoryTable
from tl_integrations.capture.recording import Recording
from tl_integrations.errors import (
    BundleCorruptError,
    BundleExistsError,
    BundleNotFinalizedError,
    BundleVersionError,
    UnsupportedTensorError,
)
from tl_integrations.storage.torchlens_writer import write_fastlog

MAKE = """
import sys, torch, torchlens
from torch import nn
torch.manual_seed(0)
net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU())
x = torch.randn(2, 3)
folder = sys.argv[1]
torchlens.record(net, x, save=torchlens.func("relu"), storage=torchlens.to_disk(folder + "/fastlog.tlspec"))
torchlens.save(torchlens.trace(net, x), folder + "/trace.tlspec")
"""
READ = """
import json, sys, torch, torchlens
found = torchlens.fastlog.load(sys.argv[1])
def tell(record):
    kept = record.disk_payload
    return record.ctx.raw_label, record.ctx.address, str(kept.dtype), kept.tolist()
print(json.dumps([tell(record) for record in found.records]))
"""


def in_own_process(code: str, path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(path)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Both kinds of bundles, as TorchLens writes them."""
    folder = tmp_path_factory.mktemp("torchlens")
    in_own_process(MAKE, folder)
    return folder


@pytest.fixture(scope="module")
def expected() -> list[torch.Tensor]:
    torch.manual_seed(0)
    net, x = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.ReLU()), torch.randn(2, 3)
    return [net[:2](x).detach(), net(x).detach()]


def test_a_fastlog_bundle_opens_with_equal_tensors(made: Path, expected: list[torch.Tensor]) -> None:
    recording = tl.load(made / "fastlog.tlspec")
    assert [r.raw_label for r in recording] == ["relu_1_3_raw", "relu_2_5_raw"]
    assert [r.address for r in recording] == ["1", "3"] and recording[0].func_name == "relu"
    assert all(torch.equal(r.out, t) for r, t in zip(recording, expected))
    assert torch.equal(recording["relu_2"].out, expected[1])


def test_a_trace_bundle_opens_without_its_pickle(made: Path, expected: list[torch.Tensor]) -> None:
    os.rename(made / "trace.tlspec" / "metadata.pkl", made / "metadata.pkl")
    recording = tl.load(made / "trace.tlspec")
    assert torch.equal(recording["relu_1_2"].out, expected[0])
    assert torch.equal(recording["relu_2_4"].out, expected[1])
    assert recording[0].label == "input_1" and len(recording) == 6


def test_what_is_written_for_torchlens_opens_there(tmp_path: Path) -> None:
    tensors = {
        f"relu_{n}_{n}": torch.arange(6).reshape(2, 3).to(dtype)
        for n, dtype in enumerate(
            (torch.float32, torch.float64, torch.int64, torch.bfloat16, torch.bool), start=1
        )
    }
    with tl.to_disk(tmp_path / "run.tlspec").open() as sink:
        sink.write(step(0, tensors))
        sink.write(step(1, {"relu_1_1": torch.zeros(1)}))
    tl.save(tl.load(tmp_path / "run.tlspec"), tmp_path / "out.tlspec", format="torchlens")
    told = json.loads(in_own_process(READ, tmp_path / "out.tlspec"))
    assert [row[0] for row in told] == [*tensors, "relu_1_1"]
    for (_, address, dtype, numbers), (label, tensor) in zip(told, tensors.items()):
        assert (address, dtype, numbers) == (label.rsplit("_", 2)[0], str(tensor.dtype), tensor.tolist())


def test_a_fastlog_bundle_survives_both_conversions(made: Path, tmp_path: Path) -> None:
    tl.save(tl.load(made / "fastlog.tlspec"), tmp_path / "ours.tlspec")
    tl.save(tl.load(tmp_path / "ours.tlspec"), tmp_path / "theirs.tlspec", format="torchlens")
    first, last = tl.load(made / "fastlog.tlspec"), tl.load(tmp_path / "theirs.tlspec")
    assert [(r.raw_label, r.address, r.modules) for r in first] == [
        (r.raw_label, r.address, r.modules) for r in last
    ]
    assert all(torch.equal(a.out, b.out) for a, b in zip(first, last))


def test_damage_and_foreign_versions_are_typed_errors(tmp_path: Path) -> None:
    path = tmp_path / "a.tlspec"
    write_fastlog(path, [record(torch.ones(3))])
    blob, manifest = path / "blobs" / "0000000001.safetensors", path / "manifest.json"
    recording = tl.load(path)
    blob.write_bytes(blob.read_bytes()[:-1] + b"\x01")
    with pytest.raises(BundleCorruptError, match="checksum"):
        _ = recording[0].out
    whole = json.loads(manifest.read_text())
    manifest.write_text(json.dumps(whole | {"tlspec_version": 12}))
    with pytest.raises(BundleVersionError, match="12"):
        tl.load(path)
    manifest.write_text(json.dumps(whole))
    (path / "PARTIAL").touch()
    with pytest.raises(BundleNotFinalizedError):
        tl.load(path)


@pytest.mark.parametrize(
    "name", ["../../secret.safetensors", "/etc/passwd", "blobs/1.safetensors", "blobs/../x", ""]
)
def test_a_blob_that_lies_elsewhere_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.tlspec"
    write_fastlog(path, [record(torch.ones(3))])
    index = path / "fastlog_index.jsonl"
    index.write_text(index.read_text().replace("blobs/0000000001.safetensors", name))
    with pytest.raises(BundleCorruptError, match="none of its blobs"):
        tl.load(path)


def test_nothing_half_written_stays_when_a_tensor_is_refused(tmp_path: Path) -> None:
    recording = Recording(
        MemoryTable([record(torch.ones(2)), record(torch.ones(2, dtype=torch.complex128), "c_1_1")])
    )
    with pytest.raises(UnsupportedTensorError, match="complex128"):
        tl.save(recording, tmp_path / "a.tlspec", format="torchlens")
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "taken").mkdir()
    with pytest.raises(BundleExistsError):
        tl.save(recording[:1], tmp_path / "taken", format="torchlens")
