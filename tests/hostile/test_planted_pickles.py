"""A pickle with a side effect under every file name of a bundle, and beside them: it is never loaded."""

import os
import pickle
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch
from bundles import bundle, record, values

from tl_integrations.capture.protocols import SinkContext
from tl_integrations.errors import BundleError
from tl_integrations.storage import load, recover, to_disk
from tl_integrations.storage.torchlens_writer import write_fastlog
from tl_integrations.storage.verification import verify


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        return os.mkdir, (str(self.path),)


NAMES = (
    "manifest.json",
    "manifest.json.part",
    "index.jsonl",
    "config.yaml",
    "shard-00001.safetensors",
    "index-00001.safetensors",
    "lock",
    "metadata.pkl",
    "data.pkl",
    "tensors.pt",
    "archive/data.pkl",
    "array.npy",
)


def read_everything(path: Path) -> None:
    for reader in (load, recover, lambda p: load(p, live=True)):
        with suppress(BundleError):
            for found in reader(path):
                with suppress(BundleError):
                    _ = found.out
    verify(path)
    with suppress(BundleError):
        to_disk(path, resume=True).check()


@pytest.mark.parametrize("name", NAMES)
def test_a_pickle_in_place_of_any_file_is_never_loaded(tmp_path: Path, name: str) -> None:
    fuse = tmp_path / "exploded"
    path = bundle(tmp_path / "run.tlspec", context=SinkContext(config={"a": 1}))
    target = path / name
    target.parent.mkdir(exist_ok=True)
    target.write_bytes(pickle.dumps(Bomb(fuse)))
    read_everything(path)
    assert not fuse.exists()
    pickle.loads(pickle.dumps(Bomb(fuse)))
    assert fuse.exists(), "the bomb itself is a dud"


def test_extra_files_do_not_disturb_the_others(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    (path / "metadata.pkl").write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    recording = load(path)
    assert torch.equal(recording.at(1)["relu_1_1"].out, values(1)["relu_1_1"])
    assert not (tmp_path / "exploded").exists()


def test_the_pickle_of_a_torchlens_bundle_is_never_loaded(tmp_path: Path) -> None:
    path = tmp_path / "theirs.tlspec"
    write_fastlog(path, [record(torch.ones(2))])
    for name in ("metadata.pkl", "blobs/0000000001.pkl"):
        (path / name).write_bytes(pickle.dumps(Bomb(tmp_path / "exploded")))
    assert torch.equal(load(path)[0].out, torch.ones(2))
    os.unlink(path / "fastlog_index.jsonl")
    assert torch.equal(load(path)[0].out, torch.ones(2))
    assert not (tmp_path / "exploded").exists()
