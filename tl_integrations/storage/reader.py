"""Opening bundles: `load` for finished ones, `load(live=True)` for what is committed of a growing one."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import numpy as np
from xxhash import xxh3_128

from tl_integrations.capture.protocols import Outcome
from tl_integrations.capture.recording import Recording
from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.columns import Segment
from tl_integrations.storage.filesystem import DISK, Disk, Folder, io_errors
from tl_integrations.storage.finding import no_bundle
from tl_integrations.storage.graphs import StoredGraphs
from tl_integrations.storage.index_files import IndexFiles
from tl_integrations.storage.index_lines import scan
from tl_integrations.storage.opening import look, not_finalized
from tl_integrations.storage.plain_yaml import read_config
from tl_integrations.storage.shards import read_header
from tl_integrations.storage.table import BundleTable, Part, kept_rows
from tl_integrations.storage.tlspec import (
    CONFIG,
    CONFIG_LIMIT,
    INDEX,
    INDEX_LIMIT,
    INDEX_NAME,
    MANIFEST,
    MANIFEST_LIMIT,
    OPEN_MANIFEST,
    RANK_FOLDER,
    SHARD_NAME,
    Plain,
    index_name,
    read_manifest,
    sum_of,
    sum_text,
)
from tl_integrations.storage.torchlens import is_torchlens, read_torchlens

_PIECE = 4 << 20
STATUSES = ("complete", "interrupted", "failed", "halted")


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """One bundle's folder, read."""

    path: Path
    manifest: Plain
    parts: Sequence[Part] = ()
    kept: Sequence[np.ndarray] = ()
    outcome: Outcome = field(default_factory=Outcome)
    config: Mapping[str, Any] | None = None


def load(path: str | os.PathLike[str], live: bool = False) -> Recording:
    """Open a bundle: metadata now, tensors when asked for.

    The config inside is plain data; nothing of it is built here. Bundles that TorchLens wrote open too.

    Args:
        path: Of the bundle. One with a folder per rank opens as a whole, or rank by rank.
        live: Read what is committed so far of a bundle that has no manifest (yet).
    Raises:
        BundleNotFinalizedError: if its writer did not end in order.
        BundleVersionError: if a newer version wrote it.
        BundleCorruptError: if metadata is damaged. A damaged tensor raises when it is read.
    """
    if is_torchlens(Path(path)):
        return read_torchlens(Path(path))
    return as_recording(*open_all(Path(path), live=live))


def open_all(path: Path, *, live: bool, disk: Disk = DISK) -> tuple[list[Opened], tuple[int, ...]]:
    """Every rank's bundle at `path`, and the ranks that are not there."""
    if look(path, disk).kind == "ranks":
        return _open_ranks(path, live=live, disk=disk)
    return [open_one(path, live=live, disk=disk)], ()


def open_one(path: Path, *, live: bool = False, disk: Disk = DISK) -> Opened:
    """One bundle's folder."""
    if look(path, disk).kind in ("nothing", "file", "empty"):
        raise no_bundle(path)
    with Folder(path, disk) as folder:
        names = set(folder.names())
        if MANIFEST in names:
            return _open_finished(folder)
        if INDEX not in names and OPEN_MANIFEST not in names:
            raise no_bundle(path)
        if not live:
            raise not_finalized(path)
        return _open_live(folder, names)


def as_recording(bundles: Sequence[Opened], missing: tuple[int, ...]) -> Recording:
    parts = [part for bundle in bundles for part in bundle.parts]
    kept = [rows for bundle in bundles for rows in bundle.kept]
    return Recording(
        BundleTable(parts, kept),
        outcome=_common_outcome(bundles, missing),
        config=next((b.config for b in bundles if b.config is not None), None),
        graphs=StoredGraphs(parts, kept),
        missing_ranks=missing,
    )


def _common_outcome(bundles: Sequence[Opened], missing: tuple[int, ...]) -> Outcome:
    for bundle in bundles:
        if bundle.outcome.status != "complete":
            return bundle.outcome
    if missing:
        ranks = ", ".join(map(str, missing))
        return Outcome(
            status="failed", reason=f"rank {ranks} did not finish; `tl.recover(path)` reads what is left"
        )
    return Outcome()


def _open_ranks(path: Path, *, live: bool, disk: Disk) -> tuple[list[Opened], tuple[int, ...]]:
    with Folder(path, disk) as folder:
        found = {name: found for name in folder.names() if (found := RANK_FOLDER.fullmatch(name))}
    bundles = {
        int(match[1]): open_one(path / name, live=live, disk=disk)
        for name, match in found.items()
        if live or look(path / name, disk).kind == "finished"
    }
    if not bundles:
        raise not_finalized(path, "No rank has a manifest")
    return list(bundles.values()), missing_ranks(found.keys(), list(bundles.values()), set(bundles))


def missing_ranks(names: Any, bundles: Sequence[Opened], present: set[int]) -> tuple[int, ...]:
    """Ranks that should have kept records and are not among `present`."""
    matches = (RANK_FOLDER.fullmatch(name) for name in names)
    expected = set(range(max((int(match[2]) for match in matches if match), default=0)))
    for bundle in bundles:
        ranks = bundle.manifest.get("ranks")
        if isinstance(ranks, list) and ranks:
            expected = {rank for rank in ranks if type(rank) is int}
    return tuple(sorted(expected - present))


def _open_finished(folder: Folder) -> Opened:
    where = str(folder.path / MANIFEST)
    manifest = read_manifest(folder.read(MANIFEST, MANIFEST_LIMIT), where)
    listed = _listed(manifest, where)
    _check_index(folder, manifest["index"])
    files = IndexFiles(folder.path, folder.disk, manifest["id"])
    parts = [Part(files.segment(entry), folder.path, folder.disk) for entry in listed["indexes"]]
    for entry in listed["shards"]:
        _check_shard(folder, entry)
    _check_counts(manifest, parts, where)
    kept = kept_rows(parts)
    files.opened()
    return Opened(
        path=folder.path,
        manifest=manifest,
        parts=parts,
        kept=kept,
        outcome=outcome_of(manifest),
        config=config_of(folder, manifest),
    )


def outcome_of(manifest: Plain) -> Outcome:
    status, reason = manifest.get("status"), manifest.get("reason", "")
    if status not in STATUSES or not isinstance(reason, str):
        raise BundleCorruptError(
            f"A manifest has the status {str(status)[:40]!r}; known: {', '.join(STATUSES)}."
        )
    return Outcome(status=cast(Any, status), reason=reason)


def _listed(manifest: Plain, where: str) -> dict[str, list[Plain]]:
    """The manifest's files, their names known to be ours."""
    found: dict[str, list[Plain]] = {}
    for key, pattern in (("shards", SHARD_NAME), ("indexes", INDEX_NAME)):
        entries = manifest.get(key)
        if not isinstance(entries, list) or not all(
            _is_file_entry(e) and _named(e, pattern) for e in entries
        ):
            raise BundleCorruptError(f"{where} lists {key} that no bundle has.")
        if len({entry["name"] for entry in entries}) != len(entries):
            raise BundleCorruptError(f"{where} lists one of its {key} twice.")
        found[key] = entries
    if not _is_file_entry(manifest.get("index")) or not isinstance(manifest.get("id"), str):
        raise BundleCorruptError(f"{where} lacks its index or its id.")
    return found


def _is_file_entry(entry: Any) -> bool:
    return (
        isinstance(entry, dict)
        and type(entry.get("nbytes")) is int
        and entry["nbytes"] >= 0
        and isinstance(entry.get("sum"), str)
    )


def _named(entry: Plain, pattern: Any) -> bool:
    name = entry.get("name")
    return isinstance(name, str) and pattern.fullmatch(name) is not None and not name.endswith(".part")


def _check_index(folder: Folder, entry: Plain) -> None:
    """The lines are what the manifest says: hashed in pieces, not parsed; damage is named by its line."""
    total, offset = xxh3_128(), 0
    with folder.reading(INDEX) as fd, io_errors("read", folder.path / INDEX):
        while offset < entry["nbytes"] and (piece := folder.disk.read(fd, _PIECE, offset)):
            piece = piece[: entry["nbytes"] - offset]
            total.update(piece)
            offset += len(piece)
    if offset != entry["nbytes"] or sum_text(total.digest()) != entry["sum"]:
        scan(folder)
        raise BundleCorruptError(
            f"{str(folder.path / INDEX)!r} is not the index that the manifest tells of. "
            "`tl.recover(path)` reads what can be read."
        )


def _check_shard(folder: Folder, entry: Plain) -> None:
    size = folder.size(entry["name"])
    if size != entry["nbytes"]:
        have = "is not there" if size is None else f"has {size} bytes"
        raise BundleCorruptError(
            f"{str(folder.path / entry['name'])!r} {have}; the manifest tells of {entry['nbytes']} bytes. "
            "`tl.recover(path)` reads what can be read."
        )


def _check_counts(manifest: Plain, parts: Sequence[Part], where: str) -> None:
    counts = manifest.get("counts")
    commits = sum(len(part.segment.columns["commits"]) for part in parts)
    if not isinstance(counts, dict) or counts.get("commits") != commits:
        raise BundleCorruptError(f"{where} counts other commits than its {commits}.")


def config_of(folder: Folder, manifest: Plain) -> dict[str, Any] | None:
    """The config that a bundle holds: plain data.

    Raises:
        BundleCorruptError: if it is not the one that was written.
    """
    entry = manifest.get("config")
    if entry is None:
        return None
    where = str(folder.path / CONFIG)
    content = folder.read(CONFIG, CONFIG_LIMIT)
    if not _is_file_entry(entry) or sum_of(content) != entry["sum"]:
        raise BundleCorruptError(f"{where!r} is not the config that was written. Put the original back.")
    return read_config(content, where)


def read_open_manifest(folder: Folder, names: set[str]) -> Plain:
    """What an unfinished bundle says of itself; empty when it says nothing."""
    if OPEN_MANIFEST not in names:
        return {}
    return read_manifest(folder.read(OPEN_MANIFEST, MANIFEST_LIMIT), str(folder.path / OPEN_MANIFEST))


def _open_live(folder: Folder, names: set[str]) -> Opened:
    manifest = read_open_manifest(folder, names)
    segments, end = finished_segments(folder, names, manifest)
    first = segments[-1].first + segments[-1].size if segments else 0
    found = scan(folder, end, first=first) if INDEX in names else None
    segments += found.segments if found is not None else []
    parts = [Part(segment, folder.path, folder.disk) for segment in segments]
    return Opened(
        path=folder.path,
        manifest=manifest,
        parts=parts,
        kept=kept_rows(parts),
        outcome=Outcome(status="interrupted", reason="the bundle is not finished"),
        config=config_of(folder, manifest),
    )


def finished_segments(folder: Folder, names: set[str], manifest: Plain) -> tuple[list[Segment], int]:
    """Columns of the shards that are finished, and the byte of the index that they reach to."""
    segments, end, number = [], 0, 1
    while index_name(number) in names:
        where = str(folder.path / index_name(number))
        content = folder.read(index_name(number), INDEX_LIMIT)
        segment, about = Segment.decode(content, where)
        _check_own_sum(content, about, where)
        if about.get("bundle") != manifest.get("id") or not about.get("index_end", "").isdigit():
            raise BundleCorruptError(f"{where!r} belongs to another bundle.")
        segments.append(segment)
        end, number = int(about["index_end"]), number + 1
    return segments, end


def _check_own_sum(content: bytes, about: Mapping[str, str], where: str) -> None:
    _, _, start = read_header(content, len(content), where)
    if about.get("sum") != sum_of(memoryview(content)[start:]):
        raise BundleCorruptError(f"{where!r} is damaged: its columns do not fit their checksum.")
