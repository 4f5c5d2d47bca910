"""The bridge to TorchLens 2.x bundles: both kinds are read without unpickling, fastlog ones are written.

A fastlog bundle (`torchlens.record(..., storage=...)`) is a folder with `manifest.json`,
`fastlog_index.jsonl` and one safetensors file per tensor under `blobs/`. A trace bundle
(`torchlens.save(trace, ...)`) lists its tensors in the manifest and keeps the graph in a pickle, which is not
opened: labels and tensors are read, the graph is not.
"""

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tl_integrations.capture.events import Gradient, Record
from tl_integrations.capture.record_tables import MemoryTable
from tl_integrations.capture.recording import Recording
from tl_integrations.errors import (
    BundleCorruptError,
    BundleNotFinalizedError,
    BundleVersionError,
)
from tl_integrations.storage.filesystem import Folder
from tl_integrations.storage.opening import look
from tl_integrations.storage.shards import read_header
from tl_integrations.storage.strict_json import parse
from tl_integrations.storage.tensors import from_bytes

VERSIONS = range(6, 10)
_LINES = "fastlog_index.jsonl"
_MANIFEST_LIMIT = 1 << 28
_LINE_LIMIT = 1 << 22
_BLOB = re.compile(r"blobs/(\d{10}\.safetensors)")
CODES = {
    "BOOL": torch.bool,
    "U8": torch.uint8,
    "I8": torch.int8,
    "I16": torch.int16,
    "I32": torch.int32,
    "I64": torch.int64,
    "F16": torch.float16,
    "BF16": torch.bfloat16,
    "F32": torch.float32,
    "F64": torch.float64,
    "C64": torch.complex64,
}
"""The dtypes that TorchLens keeps on disk."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BlobPayload:
    """A tensor in a file of its own, read and checked when it is asked for."""

    folder: Path
    name: str
    sha256: str
    nbytes: int

    def read(self) -> Tensor:
        """The tensor.

        Raises:
            BundleCorruptError: if the file is not what was written.
        """
        where = str(self.folder / self.name)
        with Folder(self.folder) as folder:
            content = folder.read(self.name, 1 << 40)
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise BundleCorruptError(f"{where!r} is damaged: its bytes do not fit their checksum.")
        places, _, start = read_header(content, len(content), where)
        if len(places) != 1:
            raise BundleCorruptError(f"{where!r} holds {len(places)} tensors instead of one.")
        (place,) = places.values()
        if place.code not in CODES:
            raise BundleCorruptError(f"{where!r} holds a tensor of the dtype {place.code!r}.")
        data = bytearray(content[start + place.start : start + place.stop])
        return from_bytes(data, CODES[place.code], place.shape)


def is_torchlens(path: Path) -> bool:
    """Whether a folder is a bundle that TorchLens wrote."""
    if look(path).kind != "foreign":
        return False
    with Folder(path) as folder:
        return "manifest.json" in folder.names() and "tlspec_version" in _manifest(folder)


def read_torchlens(path: Path) -> Recording:
    """A TorchLens bundle as a recording; nothing in it is unpickled.

    Raises:
        BundleNotFinalizedError: if TorchLens gave it up half-way.
        BundleVersionError: if its format is not one of those known.
        BundleCorruptError: if it is damaged.
    """
    with Folder(path) as folder:
        names, manifest = folder.names(), _manifest(folder)
        version = manifest.get("tlspec_version")
        if type(version) is not int or version not in VERSIONS:
            raise BundleVersionError(
                f"{str(path)!r} has TorchLens's format version {str(version)[:40]!r}; "
                f"{VERSIONS[0]} to {VERSIONS[-1]} are read."
            )
        if "PARTIAL" in names:
            raise BundleNotFinalizedError(f"{str(path)!r} was given up by TorchLens before it was finished.")
        if _LINES in names:
            return Recording(MemoryTable([*_fastlog_records(folder)]))
        return Recording(MemoryTable(_trace_records(path, manifest)))


def _manifest(folder: Folder) -> dict[str, Any]:
    where = str(folder.path / "manifest.json")
    found = parse(folder.read("manifest.json", _MANIFEST_LIMIT), where)
    if not isinstance(found, dict):
        raise BundleCorruptError(f"{where} is no mapping.")
    return found


def _fastlog_records(folder: Folder) -> Iterator[Record]:
    where = str(folder.path / _LINES)
    for number, content in enumerate(folder.read(_LINES, _MANIFEST_LIMIT).splitlines(), start=1):
        found = parse(content[:_LINE_LIMIT], f"Line {number} of {where}")
        context, entry = (
            (found.get("ctx"), found.get("metadata")) if isinstance(found, dict) else (None, None)
        )
        if not isinstance(context, dict):
            raise BundleCorruptError(f"Line {number} of {where} describes no record.")
        payload = None if not entry else _payload(folder.path, entry)
        yield Record(payload=payload, **_fields(context, f"Line {number} of {where}"))


def _fields(context: dict[str, Any], where: str) -> dict[str, Any]:
    """What TorchLens's context of a record says, in our words."""
    stack = [
        call for call in context.get("module_stack") or [] if isinstance(call, dict) and call.get("address")
    ]
    return {
        "kind": "module" if context.get("kind") == "module" else "op",
        "raw_label": _text(context, "raw_label") or None,
        "short_label": _text(context, "label_prefix") or None,
        "func_name": _text(context, "func_name"),
        "address": _text(context, "address"),
        "modules": tuple(f"{call['address']}:{call.get('pass_index', 1)}" for call in stack),
        "run_index": _count(context, "pass_index"),
        "pass_index": _count(context, "module_pass_index"),
        "shape": _shape(context.get("shape") or [], where),
        "dtype": _dtype(context.get("dtype"), where),
        "device": _text(context, "tensor_device") or "cpu",
        "requires_grad": context.get("tensor_requires_grad") is True,
    }


def _trace_records(path: Path, manifest: dict[str, Any]) -> list[Record]:
    """The tensors that the manifest lists; a gradient goes to the record of its label."""
    where, entries = str(path / "manifest.json"), manifest.get("tensors")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise BundleCorruptError(f"{where} lists no tensors.")
    gradients = {
        e.get("label"): Gradient(payload=_payload(path, e)) for e in entries if e.get("kind") == "grad"
    }
    records = []
    for entry in entries:
        if entry.get("kind") == "out":
            label, _, call = _text(entry, "label").rpartition(":")
            records.append(
                Record(
                    label=label or _text(entry, "label"),
                    pass_index=int(call) if label and call.isdigit() else 1,
                    shape=_shape(entry.get("shape"), where),
                    dtype=_dtype(entry.get("dtype"), where),
                    requires_grad=entry.get("requires_grad") is True,
                    payload=_payload(path, entry),
                    gradient=gradients.get(entry.get("label")),
                )
            )
    return records


def _payload(path: Path, entry: Any) -> BlobPayload:
    name = _BLOB.fullmatch(_text(entry, "relative_path")) if isinstance(entry, dict) else None
    if name is None or not isinstance(entry.get("sha256"), str):
        raise BundleCorruptError(f"{str(path)!r} names a file that is none of its blobs: {str(entry)[:80]}.")
    nbytes = entry.get("bytes")
    nbytes = nbytes if type(nbytes) is int and nbytes >= 0 else 0
    return BlobPayload(folder=path / "blobs", name=name[1], sha256=entry["sha256"], nbytes=nbytes)


def _text(found: dict[str, Any], key: str) -> str:
    value = found.get(key)
    return value if isinstance(value, str) else ""


def _count(found: dict[str, Any], key: str) -> int:
    value = found.get(key)
    return value if type(value) is int and value > 0 else 1


def _shape(value: Any, where: str) -> tuple[int, ...]:
    if not isinstance(value, list) or not all(type(size) is int and 0 <= size < 1 << 62 for size in value):
        raise BundleCorruptError(f"{where} holds the shape {str(value)[:80]}.")
    return tuple(value)


def _dtype(value: Any, where: str) -> torch.dtype:
    names = {str(dtype).removeprefix("torch."): dtype for dtype in CODES.values()}
    found = names.get(str(value).removeprefix("torch."))
    if found is None:
        raise BundleCorruptError(f"{where} holds the dtype {str(value)[:40]!r}.")
    return found
