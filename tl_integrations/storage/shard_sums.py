"""Whole shards: finishing one that a crash left, and checking one byte by byte."""

import os
from collections.abc import Iterator, Mapping

from xxhash import xxh3_128, xxh3_128_digest

from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.columns import Segment
from tl_integrations.storage.filesystem import Folder
from tl_integrations.storage.record_lines import read_site
from tl_integrations.storage.shards import (
    ALIGNMENT,
    HEADER_ROOM,
    Place,
    header,
    header_entry,
    header_length,
    read_header,
)
from tl_integrations.storage.tensors import CARRIERS, carrier_shape
from tl_integrations.storage.tlspec import Plain, shard_name, sum_text

_PIECE = 1 << 20


def finish_left_shard(folder: Folder, segment: Segment, bundle_id: str, *, durable: bool) -> Plain:
    """Make an ordinary safetensors file of a growing shard, with the committed tensors only.

    Returns: its line in the manifest.
    """
    name = shard_name(segment.shard)
    if folder.size(f"{name}.part") is None:
        return shard_entry(folder, name)
    places = list(_places(segment))
    entries = [header_entry(n, p.code, list(p.shape), p.start, p.stop) for n, p in places]
    nbytes = places[-1][1].stop if places else 0
    head = header(entries, {"format": "pt", "bundle": bundle_id})
    temporary = f"{name}.tmp"
    with folder.reading(f"{name}.part") as source:
        target = folder.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            folder.disk.write(target, [head])
            for start in range(0, nbytes, _PIECE):
                piece = folder.disk.read(source, min(_PIECE, nbytes - start), HEADER_ROOM + start)
                if not piece:
                    raise BundleCorruptError(
                        f"{name!r} of {str(folder.path)!r} is shorter than its lines say."
                    )
                folder.disk.write(target, [piece])
            folder.disk.sync(target)
        finally:
            folder.disk.close(target)
    folder.disk.rename(temporary, name, at=folder.fd)
    if durable:
        folder.sync()
    folder.unlink(f"{name}.part")
    return shard_entry(folder, name)


def shard_entry(folder: Folder, name: str) -> Plain:
    """The line in a manifest of a finished shard, computed from its bytes."""
    where = str(folder.path / name)
    with folder.reading(name) as fd:
        size = os.fstat(fd).st_size
        start = 8 + header_length(bytes(folder.disk.read(fd, 8, 0)), size, where)
        head = bytes(folder.disk.read(fd, start, 0))
        places, _, _ = read_header(head, size, where)
        total = xxh3_128(head)
        for place in sorted(places.values(), key=lambda p: (p.start, p.stop)):
            total.update(tensor_digest(folder, fd, start + place.start, place.stop - place.start))
    return {"name": name, "nbytes": size, "sum": sum_text(total.digest())}


def tensor_digest(folder: Folder, fd: int, offset: int, nbytes: int) -> bytes:
    """The checksum of a range of a file, read in pieces."""
    if nbytes <= _PIECE:
        return xxh3_128_digest(folder.disk.read(fd, nbytes, offset))
    total, done = xxh3_128(), 0
    while done < nbytes and (piece := folder.disk.read(fd, min(_PIECE, nbytes - done), offset + done)):
        total.update(piece)
        done += len(piece)
    return total.digest()


def _places(segment: Segment) -> Iterator[tuple[str, Place]]:
    """Tensors and fillers of a segment's shard in file order."""
    tensors = sorted(_tensors(segment), key=lambda item: item[1].start)
    reached = fillers = 0
    for name, place in tensors:
        gap = place.start - reached
        if gap:
            yield f"p{fillers:08d}", Place(code="U8", shape=(gap,), start=reached, stop=place.start)
            fillers += 1
        if gap < 0 or (place.start % ALIGNMENT and place.start != place.stop):
            raise BundleCorruptError(f"{segment.where} places {name} over another tensor.")
        yield name, place
        reached = max(reached, place.stop)


def _tensors(segment: Segment) -> Iterator[tuple[str, Place]]:
    columns = segment.columns
    sites: Mapping[int, Plain] = {
        c: read_site(s, segment.where, bare=True) for c, s in enumerate(segment.sites)
    }
    for row in range(segment.size):
        if columns["nbytes"][row] >= 0:
            yield f"r{segment.first + row:09d}", _place(columns, "", row, sites[int(columns["site"][row])])
    for row, owner in enumerate(columns["grad_record"].tolist()):
        yield f"g{owner:09d}", _place(columns, "grad_", row, sites[int(columns["grad_site"][row])])


def _place(columns: Mapping[str, object], prefix: str, row: int, site: Plain) -> Place:
    offset, nbytes = (int(columns[f"{prefix}{name}"][row]) for name in ("offset", "nbytes"))  # type: ignore[index]
    dtype, shape = site["stored_dtype"], site["stored_shape"]
    if site["stored_nbytes"] != nbytes:
        raise BundleCorruptError(f"A tensor of shape {list(shape)} has {nbytes} bytes in the index.")
    return Place(
        code=CARRIERS[dtype].code,
        shape=tuple(carrier_shape(dtype, shape)),
        start=offset,
        stop=offset + nbytes,
    )
