import json
import os
from pathlib import Path

import pytest
import torch
from bundles import bundle, record, step, values

from tl_integrations.capture.protocols import Outcome
from tl_integrations.errors import (
    BundleCorruptError,
    BundleError,
    BundleNotFinalizedError,
    BundleVersionError,
)
from tl_integrations.storage import TlspecSink, load, recover, save
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.tlspec import line, read_manifest, write_manifest
from tl_integrations.storage.verification import verify

REPLACING = WriteOptions(overwrite=True)


def unfinished(path: Path, steps: range = range(3)) -> Path:
    """What a killed writer leaves, without killing anybody."""
    bundle(path, steps)
    manifest = read_manifest((path / "manifest.json").read_bytes(), "it")
    known = {k: v for k, v in manifest.items() if k not in ("status", "counts", "shards", "indexes", "index")}
    (path / "manifest.json.part").write_bytes(write_manifest(known))
    for name in ("manifest.json", "index-00001.safetensors"):
        os.unlink(path / name)
    return path


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 4
    path.write_bytes(content)


def test_a_whole_bundle_recovers_whole(tmp_path: Path) -> None:
    recovered = recover(bundle(tmp_path / "run.tlspec"))
    assert len(recovered) == 9 and recovered.status == "complete"
    assert recovered.recovery.lost == 0 and recovered.recovery.finished
    assert torch.equal(recovered.at(2)["relu_3_3"].out, values(2)["relu_3_3"])


def test_what_was_committed_comes_back_and_the_status_says_why(tmp_path: Path) -> None:
    path = unfinished(tmp_path / "run.tlspec")
    with pytest.raises(BundleNotFinalizedError):
        load(path)
    recovered = recover(path)
    assert len(recovered) == 9 and recovered.status == "interrupted"
    assert "did not finish" in repr(recovered) and "9 records recovered" in repr(recovered)


def test_recovering_changes_nothing_on_disk(tmp_path: Path) -> None:
    path = unfinished(tmp_path / "run.tlspec")
    before = {name: (path / name).read_bytes() for name in os.listdir(path)}
    recover(path)
    assert {name: (path / name).read_bytes() for name in os.listdir(path)} == before


def test_a_torn_last_line_is_dropped_and_said(tmp_path: Path) -> None:
    path = unfinished(tmp_path / "run.tlspec")
    with open(path / "index.jsonl", "ab") as index:
        index.write(line({"kind": "record", "record": 9})[:-20].encode())
    found = recover(path).recovery
    assert found.torn and found.records == 9 and found.lost == 0


def test_records_without_a_commit_are_dropped_and_counted(tmp_path: Path) -> None:
    path = unfinished(tmp_path / "run.tlspec")
    lines = (path / "index.jsonl").read_bytes().splitlines(keepends=True)
    (path / "index.jsonl").write_bytes(b"".join(lines[:-1]))
    found = recover(path)
    assert found.steps == [0, 1] and found.recovery.uncommitted == 3


@pytest.mark.parametrize("which", range(12))
def test_a_damaged_line_costs_one_record_or_none(tmp_path: Path, which: int) -> None:
    path = bundle(tmp_path / "run.tlspec")
    lines = (path / "index.jsonl").read_bytes().splitlines(keepends=True)
    flip(path / "index.jsonl", sum(map(len, lines[:which])) + len(lines[which]) // 2)
    with pytest.raises(BundleCorruptError, match=f"Line {which + 1} "):
        load(path)
    found = recover(path)
    is_commit = b'"commit","commit"' in lines[which]
    last = which == len(lines) - 1
    assert found.recovery.damaged_lines == 1
    if last:
        # Nothing tells a damaged commit at the very end from one that was never written.
        assert found.recovery.uncommitted == 3 and len(found) == 6
    else:
        assert found.recovery.lost == (0 if is_commit else 1) and len(found) == 9 - found.recovery.lost


def test_a_damaged_tensor_is_named_and_the_others_load(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    size = os.path.getsize(path / "shard-00001.safetensors")
    flip(path / "shard-00001.safetensors", size - 2)
    recording = load(path)
    with pytest.raises(BundleCorruptError, match=r"'relu_3_3'.*checksum"):
        _ = recording.at(2)["relu_3_3"].out
    assert torch.equal(recording.at(2)["relu_2_2"].out, values(2)["relu_2_2"])
    found = recover(path)
    assert len(found) == 8 and found.recovery.lost_records == 1
    assert not verify(path).whole and "record 8" in " ".join(verify(path).problems)


def test_a_damaged_gradient_costs_the_gradient_alone(tmp_path: Path) -> None:
    path = tmp_path / "run.tlspec"
    with TlspecSink(path) as sink:
        sink.write(step(0, [record(torch.ones(4), grad=torch.full((4,), 2.0))]))
    flip(path / "shard-00001.safetensors", os.path.getsize(path / "shard-00001.safetensors") - 1)
    (only,) = found = recover(path)
    assert torch.equal(only.out, torch.ones(4)) and only.grad is None
    assert found.recovery.lost_gradients == 1 and found.recovery.lost_records == 0


def test_a_failed_run_stays_failed(tmp_path: Path) -> None:
    sink = TlspecSink(tmp_path / "run.tlspec")
    sink.write(step(0, values(0)))
    sink.close(Outcome(status="failed", reason="CUDA out of memory"))
    found = recover(tmp_path / "run.tlspec")
    assert found.status == "partial_error" and found.outcome.reason == "CUDA out of memory"
    save(found, tmp_path / "copy.tlspec")
    assert load(tmp_path / "copy.tlspec").outcome == found.outcome


def test_without_lines_the_columns_of_finished_shards_are_read(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec", range(4), shard_bytes=100)
    os.unlink(path / "index.jsonl")
    found = recover(path)
    assert len(found) == 12 and found.recovery.damaged_lines == 1


def test_a_newer_version_is_refused_by_number_by_every_reader(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    manifest = read_manifest((path / "manifest.json").read_bytes(), "it")
    for version in (2, 0, -1, "1", 1.0, None, True):
        (path / "manifest.json").write_bytes(write_manifest(manifest | {"version": version}))
        for reader in (load, recover):
            with pytest.raises(BundleVersionError, match="knows 1 to 1"):
                reader(path)


@pytest.mark.parametrize("name", ["missing", "file", "empty", "foreign"])
def test_what_is_no_bundle_is_said_plainly(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    if name == "file":
        path.write_text("text")
    elif name != "missing":
        path.mkdir()
    if name == "foreign":
        (path / "notes.txt").write_text("mine")
    for reader in (load, recover):
        with pytest.raises(BundleError, match=name):
            reader(path)


def test_a_later_writer_goes_on_after_a_crash(tmp_path: Path) -> None:
    path = unfinished(tmp_path / "run.tlspec")
    with open(path / "index.jsonl", "ab") as index:
        index.write(b'{"kind":"record","rec')
    bundle(path, [3, 4], resume=True)
    recording = load(path)
    assert recording.steps == [0, 1, 2, 3, 4] and len(recording) == 15
    assert all(torch.equal(recording.at(n)["relu_1_1"].out, values(n)["relu_1_1"]) for n in range(5))
    counts = json.loads((path / "manifest.json").read_text())["counts"]
    assert counts["records"] == 15 and counts["commits"] == 5
    assert verify(path).whole


def test_an_unfinished_replacement_leaves_the_old_bundle_beside_it(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    sink = TlspecSink(path, options=REPLACING)
    sink.write(step(7, values(7)))
    sink.flush()
    with pytest.raises(BundleNotFinalizedError, match=r"run\.tlspec\.bak"):
        load(path)
    assert load(tmp_path / "run.tlspec.bak").steps == [0, 1, 2]
    sink.close()
    assert load(path).steps == [7] and not (tmp_path / "run.tlspec.bak").exists()


def test_replacing_after_a_crashed_replacement_keeps_the_last_finished_one(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    os.rename(path, tmp_path / "run.tlspec.bak")
    unfinished(path)
    sink = TlspecSink(path, options=REPLACING)
    assert load(tmp_path / "run.tlspec.bak").steps == [0, 1, 2]
    sink.close()
    assert load(path).steps == [] and not (tmp_path / "run.tlspec.bak").exists()


def test_files_of_others_in_a_bundle_are_counted_and_never_replaced(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    (path / "notes.txt").write_text("mine")
    assert len(load(path)) == 9
    assert verify(path).whole and verify(path).strangers == ("notes.txt",)
    with pytest.raises(BundleError, match=r"notes\.txt"):
        TlspecSink(path, options=REPLACING)
    assert (path / "notes.txt").read_text() == "mine"


def test_a_moved_bundle_reads_and_a_removed_one_is_a_typed_error(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    moved = tmp_path / "ümlaut" / "moved.tlspec"
    moved.parent.mkdir()
    os.rename(path, moved)
    recording = load(moved)
    assert torch.equal(recording.at(1)["relu_1_1"].out, values(1)["relu_1_1"])
    os.unlink(moved / "shard-00001.safetensors")
    with pytest.raises(BundleError):
        _ = recording.at(1)["relu_1_1"].out


def test_a_shard_replaced_under_a_reader_is_noticed(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    recording = load(path)
    other = bundle(tmp_path / "other.tlspec", [5, 6, 7])
    os.replace(other / "shard-00001.safetensors", path / "shard-00001.safetensors")
    with pytest.raises(BundleCorruptError, match="checksum"):
        _ = recording.at(1)["relu_1_1"].out


@pytest.mark.parametrize("name", ["index-00001.safetensors", "index.jsonl"])
def test_files_of_another_bundle_are_refused(tmp_path: Path, name: str) -> None:
    path, other = bundle(tmp_path / "run.tlspec"), bundle(tmp_path / "other.tlspec", [5, 6, 7])
    os.replace(other / name, path / name)
    with pytest.raises(BundleCorruptError):
        load(path)
