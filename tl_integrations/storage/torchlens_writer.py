"""Writing a bundle that `torchlens.fastlog.load` opens; `torchlens.py` describes and reads them."""

import hashlib
import platform
import shutil
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

from tl_integrations.capture.events import Record
from tl_integrations.errors import BundleExistsError, UnsupportedTensorError
from tl_integrations.storage.filesystem import DISK, Folder, as_io_error
from tl_integrations.storage.opening import look
from tl_integrations.storage.shards import header, header_entry
from tl_integrations.storage.strict_json import dump
from tl_integrations.storage.tensors import address_of, elements_kind, plain, refusal, unstorable
from tl_integrations.storage.torchlens import CODES

WRITTEN_VERSION = 9
WRITTEN_FOR = "2.36.1"
"""The TorchLens whose layout is written; its reader wants to see one of its own versions."""
_LINES = "fastlog_index.jsonl"
_CODE_OF = {dtype: code for code, dtype in CODES.items()}


def write_fastlog(path: Path, records: Sequence[Record]) -> None:
    """A bundle that `torchlens.fastlog.load` opens; it appears whole or not at all.

    Every run of the records (step, microbatch, forward) becomes one of TorchLens's passes, in order.

    Raises:
        BundleExistsError: if the path is taken.
        UnsupportedTensorError: for a dtype that TorchLens does not keep on disk.
    """
    if look(path).kind != "nothing":
        raise BundleExistsError(f"{str(path)!r} exists already. Choose another path.")
    staged = path.with_name(f"{path.name}.tmp.{uuid.uuid4().hex}")
    try:
        (staged / "blobs").mkdir(parents=True)
        _write_all(staged, records)
        DISK.rename(str(staged), str(path))
    except OSError as error:
        raise as_io_error(error, "write", path) from error
    finally:
        if staged.exists():
            with suppress(OSError):
                shutil.rmtree(staged)


def _write_all(staged: Path, records: Sequence[Record]) -> None:
    passes: dict[object, int] = {}
    entries: list[dict[str, Any]] = []
    lines: list[str] = []
    with Folder(staged / "blobs") as blobs:
        for number, record in enumerate(records, start=1):
            run = passes.setdefault((record.moment, record.run_index), len(passes) + 1)
            entry = None if record.payload is None else _write_blob(blobs, record, len(entries) + 1)
            if entry is not None:
                entries.append(entry)
            spec = {"save_out": entry is not None, "save_metadata": True, "keep_grad": False}
            lines.append(dump({"ctx": _context(record, run, number), "spec": spec, "metadata": entry or {}}))
    with Folder(staged) as folder:
        folder.publish(_LINES, ("\n".join(lines) + "\n").encode() if lines else b"", sync_folder=False)
        about = {"n_ops": len(records), "n_passes": len(passes)}
        for name, content in (("metadata", about), ("pass_index", {}), ("label_index", {})):
            folder.publish(f"{name}.json", dump(content).encode(), sync_folder=False)
        folder.publish("manifest.json", dump(_written_manifest(entries)).encode())


def _write_blob(blobs: Folder, record: Record, number: int) -> dict[str, Any]:
    tensor = record.out
    reason = unstorable(tensor)
    if reason:
        raise refusal(record.name, reason)
    if tensor.dtype not in _CODE_OF:
        raise UnsupportedTensorError(
            f"The tensor of {record.name!r} has dtype {tensor.dtype}, which TorchLens cannot keep on disk. "
            "Leave it out with `recording.select(...)`, or save as 'tlspec'."
        )
    kept = plain(tensor.cpu())
    data = elements_kind(kept.nbytes).from_address(address_of(kept))
    entry = header_entry("data", _CODE_OF[tensor.dtype], list(tensor.shape), 0, len(data))
    content = header([entry], None) + bytes(data)
    name = f"{number:010d}"
    blobs.publish(f"{name}.safetensors", content, sync_folder=False)
    return {
        "blob_id": name,
        "kind": "out",
        "label": _raw_label(record),
        "relative_path": f"blobs/{name}.safetensors",
        "backend": "safetensors",
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype).removeprefix("torch."),
        "device_at_save": "cpu",
        "layout": "strided",
        "bytes": len(data),
        "sha256": hashlib.sha256(content).hexdigest(),
        "requires_grad": False,
    }


def _raw_label(record: Record) -> str:
    return record.raw_label or record.name


def _context(record: Record, run: int, number: int) -> dict[str, Any]:
    short = record.short_label or record.func_name or record.name
    layer_type, _, index = short.rpartition("_")
    stack = [call.rpartition(":") for call in record.modules]
    return {
        "kind": "module" if record.kind == "module" else "op",
        "label": _raw_label(record),
        "raw_label": _raw_label(record),
        "label_raw": _raw_label(record),
        "label_prefix": short,
        "pass_index": run,
        "event_index": number,
        "step_index": number,
        "layer_type": layer_type or short,
        "type_index": int(index) if index.isdigit() else number,
        "raw_index": number,
        "func_name": record.func_name,
        "address": record.address,
        "module_type": "",
        "module_pass_index": record.pass_index,
        "module_stack": [
            {
                "address": address,
                "module_id": 0,
                "module_type": "",
                "pass_index": int(k) if k.isdigit() else 1,
            }
            for address, _, k in stack
        ],
        "input_output_address": None,
        "tensor_requires_grad": record.requires_grad,
        "tensor_device": record.device,
        "output_index": 0,
        "is_bottom_level_func": True,
        "time_since_pass_start": 0.0,
        "shape": list(record.shape),
        "dtype": str(record.dtype),
    }


def _written_manifest(entries: list[dict[str, Any]]) -> dict[str, Any]:
    version = sys.version_info
    return {
        "tlspec_version": WRITTEN_VERSION,
        "torchlens_version": WRITTEN_FOR,
        "torch_version": torch.__version__,
        "python_version": f"{version.major}.{version.minor}.{version.micro}",
        "platform": f"{platform.system().lower()}-{platform.machine()}",
        "created_at": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "bundle_format": "fastlog-directory",
        "n_layers": 0,
        "n_out_blobs": len(entries),
        "n_grad_blobs": 0,
        "n_auxiliary_blobs": 0,
        "tensors": entries,
        "unsupported_tensors": [],
        "written_by": "tl_integrations",
    }
