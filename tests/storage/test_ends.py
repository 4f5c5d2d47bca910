"""Every way in which a sink may end, and what others see meanwhile."""

import copy
import errno
import gc
import json
import os
import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles import bundle, step, values
from faults.disks import FailingDisk, SlowDisk

from tl_integrations.errors import BundleBusyError, BundleIOError
from tl_integrations.storage import TlspecSink, load, recover, to_disk
from tl_integrations.storage.filesystem import Disk
from tl_integrations.storage.options import WriteOptions


class DiskWithout(Disk):
    """A file system that cannot do something."""

    def __init__(self, name: str, error: int, only_folders: bool = False) -> None:
        self.name, self.error, self.only_folders = name, error, only_folders

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if name == self.name and not (self.only_folders and not os.path.isdir(f"/proc/self/fd/{args[0]}")):
            raise OSError(self.error, os.strerror(self.error))
        return function(*args, **kwargs)


class FullDisk(Disk):
    """Takes nothing while `full`."""

    full = False

    def call(self, name: str, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if self.full and name == "write":
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return function(*args, **kwargs)


def test_the_interpreters_end_without_close_is_interrupted_not_lost(tmp_path: Path) -> None:
    code = (
        "import sys; from bundles import step, values; from tl_integrations.storage import TlspecSink\n"
        "sink = TlspecSink(sys.argv[1]); [sink.write(step(n, values(n))) for n in range(5)]"
    )
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    subprocess.run(
        [sys.executable, "-c", code, tmp_path / "run.tlspec"], check=True, env=environment, timeout=120
    )
    recording = load(tmp_path / "run.tlspec")
    assert recording.steps == [0, 1, 2, 3, 4] and recording.outcome.reason == "the sink was never closed"


def test_a_forgotten_sink_is_closed_when_it_is_collected(tmp_path: Path) -> None:
    sink = TlspecSink(tmp_path / "run.tlspec")
    sink.write(step(0, values(0)))
    del sink
    gc.collect()
    assert load(tmp_path / "run.tlspec").status == "interrupted"
    assert not any(thread.name == "tlspec-writer" and thread.is_alive() for thread in threading.enumerate())


def test_a_full_disk_loses_the_step_says_so_once_and_goes_on_when_there_is_room(tmp_path: Path) -> None:
    disk = FullDisk()
    sink = TlspecSink(tmp_path / "run.tlspec", disk=disk)
    sink.write(step(0, values(0)))
    sink.flush()
    disk.full = True
    sink.write(step(1, values(1)))
    with pytest.raises(BundleIOError, match="ENOSPC") as caught:
        sink.flush()
    assert caught.value.errno == errno.ENOSPC and "run.tlspec" in str(caught.value.filename)
    disk.full = False
    sink.flush()
    sink.write(step(2, values(2)))
    sink.close()
    recording = load(tmp_path / "run.tlspec")
    assert recording.steps == [0, 2] and recording.failed
    assert "1 captured steps could not be written" in recording.outcome.reason
    assert json.loads((tmp_path / "run.tlspec" / "manifest.json").read_text())["counts"]["lost_steps"] == 1


def test_an_error_on_the_thread_reaches_the_next_write(tmp_path: Path) -> None:
    disk = FullDisk()
    sink = TlspecSink(tmp_path / "run.tlspec", disk=disk)
    disk.full = True
    sink.write(step(0, values(0)))
    sink._queue.drain(10)
    with pytest.raises(BundleIOError):
        sink.write(step(1, values(1)))
    disk.full = False
    sink.write(step(2, values(2)))
    sink.close()
    assert load(tmp_path / "run.tlspec").steps == [2]


def test_when_finishing_fails_too_the_first_error_is_the_one_raised(tmp_path: Path) -> None:
    disk = FullDisk()
    sink = TlspecSink(tmp_path / "run.tlspec", disk=disk)
    sink.write(step(0, values(0)))
    sink.flush()
    disk.full = True
    sink.write(step(1, values(1)))
    with pytest.raises(BundleIOError, match="write to") as caught:
        sink.close()
    assert any("could not be finished either" in note for note in caught.value.__notes__)
    assert recover(tmp_path / "run.tlspec").steps == [0]


def test_after_a_failed_sync_nothing_more_is_written(tmp_path: Path) -> None:
    disk = FailingDisk(1, errno.EIO, frozenset({"fsync"}))
    disk.k = -1
    sink = TlspecSink(tmp_path / "run.tlspec", disk=disk, options=WriteOptions(durability="power"))
    sink.write(step(0, values(0)))
    sink.flush()
    disk.k = disk.calls + 1
    for number in (1, 2):
        sink.write(step(number, values(number)))
        with pytest.raises(BundleIOError):
            sink.flush()
    with pytest.raises(BundleIOError, match="cannot be written any more"):
        sink.close()
    assert recover(tmp_path / "run.tlspec").steps == [0]


def test_a_folder_that_cannot_be_synced_is_written_all_the_same(tmp_path: Path) -> None:
    disk = DiskWithout("fsync", errno.EINVAL, only_folders=True)
    with TlspecSink(tmp_path / "run.tlspec", disk=disk, options=WriteOptions(durability="power")) as sink:
        sink.write(step(0, values(0)))
    assert load(tmp_path / "run.tlspec").steps == [0]


def test_a_disk_that_hangs_does_not_hang_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tl_integrations.storage.writer.CLOSE_SECONDS", 0.2)
    sink = TlspecSink(tmp_path / "run.tlspec", disk=SlowDisk(2000.0))
    for number in range(3):
        sink.write(step(number, {"a_1_1": torch.zeros(300)}))
    began = time.monotonic()
    with pytest.raises(BundleIOError, match=r"did not take .* bytes within"):
        sink.close()
    assert time.monotonic() - began < 5
    sink._queue.thread.join(30)


def test_a_second_writer_is_told_who_writes(tmp_path: Path) -> None:
    with TlspecSink(tmp_path / "run.tlspec"):
        for options in ({}, {"overwrite": True}, {"resume": True}):
            with pytest.raises(BundleBusyError, match="being written"):
                to_disk(tmp_path / "run.tlspec", **options).open()  # type: ignore[arg-type]
    assert not (tmp_path / "run.tlspec" / "lock").exists()


def test_without_flock_the_lock_file_itself_decides(tmp_path: Path) -> None:
    disk = DiskWithout("flock", errno.ENOTSUP)
    path = bundle(tmp_path / "run.tlspec")
    (path / "lock").write_text(json.dumps({"pid": 1, "host": "elsewhere", "boot": ""}))
    with pytest.raises(BundleBusyError, match="process 1 on elsewhere"):
        TlspecSink(path, options=WriteOptions(resume=True), disk=disk)
    os.unlink(path / "lock")
    TlspecSink(path, options=WriteOptions(resume=True), disk=disk).close()
    assert len(load(path)) == 9


def test_a_sink_is_neither_pickled_nor_copied(tmp_path: Path) -> None:
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        for act in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match="to_disk"):
                act(sink)
    assert repr(pickle.loads(pickle.dumps(to_disk("run.tlspec")))) == "to_disk('run.tlspec')"


def test_drop_newest_never_waits_and_counts_what_it_leaves_out(tmp_path: Path) -> None:
    options = WriteOptions(on_full="drop_newest", max_pending_bytes=2000)
    began = time.monotonic()
    with TlspecSink(tmp_path / "run.tlspec", options=options, disk=SlowDisk(20_000.0)) as sink:
        for number in range(20):
            sink.write(step(number, {"a_1_1": torch.zeros(200)}))
        assert time.monotonic() - began < 1
    counts = json.loads((tmp_path / "run.tlspec" / "manifest.json").read_text())["counts"]
    assert counts["commits"] + counts["dropped_steps"] == 20 and counts["dropped_steps"] > 0
    assert load(tmp_path / "run.tlspec").status == "complete"


def test_a_reader_beside_a_writer_always_sees_whole_steps(tmp_path: Path) -> None:
    path, seen = tmp_path / "run.tlspec", set()
    sink = TlspecSink(path, options=WriteOptions(shard_bytes=500))

    def write() -> None:
        for number in range(150):
            sink.write(step(number, values(number)))
        sink.close()

    writer = threading.Thread(target=write)
    writer.start()
    while writer.is_alive():
        recording = load(path, live=True)
        seen.add(len(recording))
        assert len(recording) % 3 == 0 and recording.steps == list(range(len(recording) // 3))
        if len(recording):
            last = recording.steps[-1]
            assert torch.equal(recording.at(last)["relu_2_2"].out, values(last)["relu_2_2"])
    writer.join()
    assert len(load(path)) == 450


def test_a_bundle_that_fails_to_begin_leaves_nothing(tmp_path: Path) -> None:
    whole = FailingDisk(-1, errno.EACCES)
    sink = TlspecSink(tmp_path / "whole.tlspec", disk=whole)
    calls = whole.calls
    sink.close()
    for k in range(1, calls + 1):
        disk = FailingDisk(k, errno.EACCES)
        with pytest.raises(BundleIOError, match=r"run\.tlspec"):
            TlspecSink(tmp_path / "run.tlspec", disk=disk)
        assert os.listdir(tmp_path) == ["whole.tlspec"], (k, disk.hit)
