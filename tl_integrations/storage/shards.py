"""The two safetensors files of a bundle: a shard that grows, and a small table written at once. Pure.

A safetensors file is a length (8 bytes, little-endian), a JSON header with name, dtype, shape and place of
every tensor, and the tensors back to back without holes. A growing shard keeps room for its header in front;
the header is filled in when the shard is finished, with spaces for what is left of the room.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.strict_json import dump, parse
from tl_integrations.storage.tensors import CODE_SIZES
from tl_integrations.storage.tlspec import sum_of

HEADER_ROOM = 4 << 20
"""Bytes in front of a growing shard's data, its length field included."""
HEADER_LIMIT = 64 << 20
ALIGNMENT = 8
"""Every tensor starts at a multiple of this many bytes; small filler tensors close the gaps."""

_NUMPY_CODES = {"u1": "U8", "i4": "I32", "i8": "I64", "f8": "F64"}
_NAME = re.compile(r"[a-z][a-z_]{0,40}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where a tensor lies in a file's data area, and as what."""

    code: str
    shape: tuple[int, ...]
    start: int
    """Bytes from the start of the data area."""
    stop: int


def header_entry(name: str, code: str, shape: Sequence[int], start: int, stop: int) -> str:
    """One tensor's part of a header's text."""
    return placed_entry(name, entry_kind(code, shape), start, stop)


def entry_kind(code: str, shape: Sequence[int]) -> str:
    """What a header says of a tensor apart from its name and place."""
    return f'"dtype":"{code}","shape":[{",".join(map(str, shape))}]'


def placed_entry(name: str, kind: str, start: int, stop: int) -> str:
    """One tensor's part of a header's text, from what `entry_kind` gave."""
    return f'"{name}":{{{kind},"data_offsets":[{start},{stop}]}}'


def header(entries: list[str], metadata: Mapping[str, str] | None, *, room: int | None = None) -> bytes:
    """The length field and header of a file.

    Args:
        room: Bytes to fill with trailing spaces, the length field included; None: as many as it needs.
    """
    about = [] if metadata is None else [f'"__metadata__":{dump(dict(metadata))}']
    text = ("{" + ",".join([*about, *entries]) + "}").encode()
    size = (len(text) + 8 + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT if room is None else room
    if len(text) > size - 8:
        raise ValueError(f"A header of {len(text)} bytes does not fit into {size}.")
    return (size - 8).to_bytes(8, "little") + text.ljust(size - 8)


def read_header(content: bytes, nbytes: int, where: str) -> tuple[dict[str, Place], dict[str, str], int]:
    """Check the header of a file of `nbytes` bytes whose beginning is `content`.

    Returns: the tensors by name in file order, the metadata, and where the data area starts.
    Raises:
        BundleCorruptError: if the ranges do not tile the data area exactly, or anything else is off.
    """
    start = 8 + header_length(content, nbytes, where)
    if len(content) < start:
        raise BundleCorruptError(f"{where} ends inside its header.")
    raw = parse(content[8:start], where)
    if not isinstance(raw, dict):
        raise BundleCorruptError(f"The header of {where} is no mapping.")
    metadata = raw.pop("__metadata__", {})
    if not isinstance(metadata, dict) or not all(isinstance(v, str) for v in metadata.values()):
        raise BundleCorruptError(f"The metadata in the header of {where} is not a mapping of texts.")
    places = {name: _place(name, entry, where) for name, entry in raw.items()}
    reached = 0
    for place in sorted(places.values(), key=lambda p: (p.start, p.stop)):
        if place.start != reached:
            raise BundleCorruptError(f"Tensors of {where} overlap or leave a hole at byte {reached}.")
        reached = place.stop
    if reached != nbytes - start:
        raise BundleCorruptError(
            f"{where} has {nbytes - start} bytes of tensors; its header tells of {reached}."
        )
    return places, metadata, start


def header_length(content: bytes, nbytes: int, where: str) -> int:
    """Bytes of the header that follows the length field."""
    length = int.from_bytes(content[:8], "little")
    if len(content) < 8 or length > min(HEADER_LIMIT, nbytes - 8):
        raise BundleCorruptError(f"{where} is too short for a header of {length} bytes.")
    return length


def _place(name: str, entry: Any, where: str) -> Place:
    if not isinstance(entry, dict) or entry.keys() != {"dtype", "shape", "data_offsets"}:
        raise BundleCorruptError(f"The header of {where} describes {name[:40]!r} in an unknown way.")
    code, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    sizes = [*shape, *offsets] if isinstance(shape, list) and isinstance(offsets, list) else [None]
    whole = all(type(size) is int and 0 <= size < 1 << 62 for size in sizes)
    if (
        not isinstance(code, str)
        or code not in CODE_SIZES
        or not whole
        or len(offsets) != 2
        or len(shape) > 65
    ):
        raise BundleCorruptError(
            f"The header of {where} gives {name[:40]!r} an impossible dtype, shape or place."
        )
    nbytes = CODE_SIZES[code]
    for size in shape:
        nbytes *= size
    if offsets[1] - offsets[0] != nbytes:
        raise BundleCorruptError(f"In {where}, shape and place of {name[:40]!r} disagree.")
    return Place(code=code, shape=tuple(shape), start=offsets[0], stop=offsets[1])


def encode_table(columns: Mapping[str, np.ndarray], metadata: Mapping[str, str]) -> bytes:
    """Named arrays as one safetensors file; the widest element types come first, so all are aligned.

    The metadata gains `sum`, the checksum of the data area.
    """
    arrays = {n: np.ascontiguousarray(a) for n, a in columns.items()}
    arrays = dict(sorted(arrays.items(), key=lambda item: (-item[1].dtype.itemsize, item[0])))
    entries, blocks, start = [], [], 0
    for name, array in arrays.items():
        block = array.tobytes()
        code = _NUMPY_CODES[array.dtype.str[1:]]
        entries.append(header_entry(name, code, list(array.shape), start, start + len(block)))
        blocks.append(block)
        start += len(block)
    area = b"".join(blocks)
    return header(entries, {**metadata, "sum": sum_of(area)}) + area


def decode_table(content: bytes, where: str) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """What `encode_table` made: arrays that view `content`, and the metadata."""
    places, metadata, start = read_header(content, len(content), where)
    codes = {code: np.dtype(f"<{kind}") for kind, code in _NUMPY_CODES.items()}
    arrays = {}
    for name, place in places.items():
        if not _NAME.fullmatch(name) or place.code not in codes:
            raise BundleCorruptError(f"{where} holds a column {name[:40]!r} that no index has.")
        flat = np.frombuffer(content, codes[place.code], int(np.prod(place.shape)), start + place.start)
        arrays[name] = flat.reshape(place.shape)
    return arrays, metadata
