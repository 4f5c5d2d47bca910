"""Going on with a bundle: what a writer must know of it; what a crash left behind is cleared away."""

import os
from contextlib import suppress
from typing import Any

import numpy as np

from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.columns import Segment, encode_columns
from tl_integrations.storage.filesystem import Folder, io_errors
from tl_integrations.storage.index_lines import Scan, scan
from tl_integrations.storage.position import Counts, Position
from tl_integrations.storage.reader import finished_segments, read_open_manifest
from tl_integrations.storage.record_lines import read_moment
from tl_integrations.storage.shard_sums import finish_left_shard
from tl_integrations.storage.shards import decode_table
from tl_integrations.storage.tlspec import (
    INDEX,
    INDEX_LIMIT,
    MANIFEST,
    MANIFEST_LIMIT,
    NO_STEP,
    OPEN_MANIFEST,
    Plain,
    index_name,
    read_manifest,
    shard_name,
    sum_of,
)


def reopen(folder: Folder, *, durable: bool) -> tuple[Plain, Position]:
    """Make a locked bundle ready for more commits.

    Returns: the manifest's fields, and where to go on.
    Raises:
        BundleCorruptError: if what is there is damaged; `recover` reads it, but nothing is added to it.
    """
    names = set(folder.names())
    if MANIFEST in names:
        manifest = read_manifest(folder.read(MANIFEST, MANIFEST_LIMIT), str(folder.path / MANIFEST))
        with io_errors("reopen", folder.path):
            folder.disk.rename(MANIFEST, OPEN_MANIFEST, at=folder.fd)
    else:
        manifest = read_open_manifest(folder, names)
    if not manifest:
        raise BundleCorruptError(
            f"{str(folder.path)!r} was given up before it began; "
            "`tl.to_disk(path, overwrite=True)` replaces it."
        )
    with io_errors("reopen", folder.path):
        return manifest, _position(folder, names, manifest, durable)


def _position(folder: Folder, names: set[str], manifest: Plain, durable: bool) -> Position:
    segments, end = finished_segments(folder, names, manifest)
    first = segments[-1].first + segments[-1].size if segments else 0
    tail = scan(folder, end, first=first) if INDEX in names else Scan()
    end = max(tail.committed_end, end)
    _cut_tail(folder, end)
    position = _finished_files(folder, segments)
    for segment in tail.segments:
        _finish(folder, segment, end, position, manifest, durable)
    everything = [*segments, *tail.segments]
    _take_counts(position, everything, manifest)
    position.commit = 1 + max([tail.last_commit, *(_largest(s.columns["commit"]) for s in everything)])
    position.record = everything[-1].first + everything[-1].size if everything else 0
    _remove_left_shards(folder, position)
    return position


def _cut_tail(folder: Folder, nbytes: int) -> None:
    """Drop what was written after the last commit."""
    if (folder.size(INDEX) or 0) > nbytes:
        fd = folder.open(INDEX, os.O_RDWR)
        try:
            folder.disk.truncate(fd, nbytes)
        finally:
            folder.disk.close(fd)


def _finished_files(folder: Folder, segments: list[Segment]) -> Position:
    """The manifest's lists, from the index files themselves."""
    position = Position()
    for number, _ in enumerate(segments, start=1):
        content = folder.read(index_name(number), INDEX_LIMIT)
        _, about = decode_table(content, index_name(number))
        position.indexes.append({"name": index_name(number), "nbytes": len(content), "sum": sum_of(content)})
        if about.get("shard_nbytes", "").isdigit():
            entry = {
                "name": shard_name(number),
                "nbytes": int(about["shard_nbytes"]),
                "sum": about["shard_sum"],
            }
            position.shards.append(entry)
        position.shard = number + 1
    return position


def _finish(
    folder: Folder, segment: Segment, index_end: int, position: Position, manifest: Plain, durable: bool
) -> None:
    """Turn what a crash left of the open shard into a finished one."""
    number = segment.shard or position.shard
    about: dict[str, Any] = {"bundle": manifest["id"], "shard": number, "index_end": index_end}
    if segment.shard:
        entry = finish_left_shard(folder, segment, manifest["id"], durable=durable)
        position.shards.append(entry)
        about |= {"shard_nbytes": entry["nbytes"], "shard_sum": entry["sum"]}
    if number != position.shard:
        raise BundleCorruptError(
            f"{str(folder.path)!r} holds shard {number} where {position.shard} is next; it cannot grow."
        )
    content = encode_columns(segment.columns, segment.first, about)
    folder.publish(index_name(number), content, sync_folder=False)
    position.indexes.append({"name": index_name(number), "nbytes": len(content), "sum": sum_of(content)})
    position.shard = number + 1


def _take_counts(position: Position, segments: list[Segment], manifest: Plain) -> None:
    counts = Counts()
    kept = manifest.get("counts")
    for name in ("dropped_steps", "dropped_records", "lost_steps"):
        value = kept.get(name, 0) if isinstance(kept, dict) else 0
        setattr(counts, name, value if type(value) is int else 0)
    committed = np.concatenate([np.zeros(0, np.int64), *(s.columns["commits"] for s in segments)])
    for segment in segments:
        columns = segment.columns
        rows = np.isin(columns["commit"], committed)
        counts.records += int(rows.sum())
        counts.nbytes += int(columns["nbytes"][rows & (columns["nbytes"] > 0)].sum())
        counts.nbytes += int(columns["grad_nbytes"].sum())
        counts.gradients += len(columns["grad_record"])
        counts.commits += len(columns["commits"])
        trained = _steps_of_training(segment)[rows]
        position.last_step = max(position.last_step, _largest(trained, position.last_step))
        for _, line in segment.lines:
            if line.get("kind") == "rewind":
                position.generation = max(position.generation, int(line["generation"]))
            elif isinstance(line.get("graph"), str):
                position.graphs |= {line["graph"]}
    position.counts = counts


def _steps_of_training(segment: Segment) -> np.ndarray:
    """Of each record its training step; of one of another stage `NO_STEP`, for only training goes back."""
    stages = [read_moment(moment, segment.where)["stage"] for moment in segment.moments]
    codes = [code for code, stage in enumerate(stages) if stage == "train"]
    return np.where(np.isin(segment.columns["moment"], codes), segment.columns["step"], NO_STEP)


def _largest(column: np.ndarray, otherwise: int = -1) -> int:
    return int(column.max()) if len(column) else otherwise


def _remove_left_shards(folder: Folder, position: Position) -> None:
    """Files of shards that no commit ever mentioned, and half-written replacements."""
    known = {entry["name"] for entry in (*position.shards, *position.indexes)}
    for name in folder.names():
        left = name.startswith("shard-") and name not in known
        if left or name.endswith(".tmp"):
            with suppress(OSError):
                folder.unlink(name)
