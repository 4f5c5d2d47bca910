"""Ways to put the tensors of a step on disk, each into files that are removed before the next is timed.

Memory that the system hands out for the first time costs several times as much as memory that a removed file
gave back, so each way gives its memory back before the others write.
"""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import torch
from bundles import step
from safetensors.torch import save_file
from torch import Tensor

from tl_integrations.storage import TlspecSink
from tl_integrations.storage.options import WriteOptions

SHARD = 256 << 20


class Way(Protocol):
    """Writes the same tensors again and again."""

    def write(self) -> None: ...
    def make_room(self) -> None:
        """Remove what is full; not timed."""

    def close(self) -> None: ...


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


class Bundle:
    """Ours: records with names, shapes and checksums, committed, readable while the run goes on."""

    def __init__(self, folder: Path, tensors: Mapping[str, Tensor]) -> None:
        self.sink = TlspecSink(folder / "run.tlspec", options=WriteOptions(max_pending_bytes=1 << 30))
        self.captured = step(0, tensors)

    def write(self) -> None:
        self.sink.write(self.captured)
        self.sink.flush()

    def make_room(self) -> None:
        for full in self.sink.path.glob("shard-*.safetensors"):
            full.unlink()

    def close(self) -> None:
        self.sink.close()


class OneFile:
    """A library's own file of the whole step: no checksums, no index over steps."""

    def __init__(self, path: Path, tensors: Mapping[str, Tensor]) -> None:
        self.path, self.tensors = path, dict(tensors)

    def make_room(self) -> None:
        self.path.unlink(missing_ok=True)

    def close(self) -> None:
        self.make_room()


class Safetensors(OneFile):
    def write(self) -> None:
        save_file(self.tensors, self.path)


class TorchSave(OneFile):
    def write(self) -> None:
        torch.save(self.tensors, self.path)


def ways(folder: Path, tensors: Mapping[str, Tensor]) -> dict[str, Way]:
    return {
        "os.write": Raw(folder, [tensor.numpy().tobytes() for tensor in tensors.values()]),
        "bundle": Bundle(folder, tensors),
        "safetensors": Safetensors(folder / "step.safetensors", tensors),
        "torch.save": TorchSave(folder / "step.pt", tensors),
    }


def fill_and_free(path: Path, nbytes: int) -> None:
    """Make the system hold that much memory which was in use before."""
    with path.open("wb") as file:
        for _ in range(nbytes >> 20):
            file.write(bytes(1 << 20))
    path.unlink()
