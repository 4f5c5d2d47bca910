"""`recover`: everything that was committed to a bundle, whatever happened to it afterwards. Reads only."""

import os
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from tl_integrations.capture.protocols import Outcome
from tl_integrations.capture.recording import Recording
from tl_integrations.errors import BundleCorruptError, BundleError, BundleVersionError
from tl_integrations.storage.checking import Progress, damaged_tensors, total_bytes
from tl_integrations.storage.columns import Segment
from tl_integrations.storage.filesystem import DISK, Disk, Folder
from tl_integrations.storage.finding import no_bundle
from tl_integrations.storage.graphs import StoredGraphs
from tl_integrations.storage.index_lines import Scan, scan
from tl_integrations.storage.opening import look
from tl_integrations.storage.reader import Opened, config_of, missing_ranks, outcome_of
from tl_integrations.storage.table import BundleTable, Part, kept_rows
from tl_integrations.storage.tlspec import (
    INDEX,
    INDEX_LIMIT,
    INDEX_NAME,
    MANIFEST,
    MANIFEST_LIMIT,
    OPEN_MANIFEST,
    RANK_FOLDER,
    Plain,
    read_manifest,
)

_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What `recover` found and what it had to leave out."""

    records: int = 0
    """Given back."""
    finished: bool = False
    """The writer had ended in order."""
    damaged_lines: int = 0
    """Lines of the index that could not be read."""
    lost_records: int = 0
    """Records of committed steps that are gone with their line or their bytes."""
    lost_gradients: int = 0
    uncommitted: int = 0
    """Records whose step was never committed: they were being written when the writer died."""
    torn: bool = False
    """The index ends in the middle of a line."""
    reasons: tuple[str, ...] = ()
    """One sentence for each of the first losses."""

    @property
    def lost(self) -> int:
        """Records of committed steps, and gradients, that are not given back."""
        return self.lost_records + self.lost_gradients

    def __str__(self) -> str:
        lost = [
            f"{self.lost_records} lost" if self.lost_records else "",
            f"{self.lost_gradients} gradients lost" if self.lost_gradients else "",
            f"{self.damaged_lines} damaged lines" if self.damaged_lines else "",
            f"{self.uncommitted} never committed" if self.uncommitted else "",
            "a torn last line" if self.torn else "",
        ]
        return ", ".join([f"{self.records} records recovered", *filter(None, lost)])


class RecoveredRecording(Recording):
    """A recording that `recover` made; `.recovery` says what is missing."""

    recovery: Recovery

    def __repr__(self) -> str:
        return f"{super().__repr__()[:-1]}; {self.recovery}>"


def recover(path: str | os.PathLike[str], *, progress: Progress | None = None) -> RecoveredRecording:
    """Every committed record of a bundle, each tensor checked; nothing on disk is changed.

    Args:
        path: Of a bundle, finished or not, or of one with a folder per rank.
        progress: Called with bytes checked and bytes in all.
    Returns: a recording; `.recovery` counts what was lost. The status of a bundle that ended in order is
        kept; one that did not is `interrupted`.
    Raises:
        BundleVersionError: if a newer version wrote it.
        BundleCorruptError: if it is no bundle, or neither its index nor its columns can be read.
    """
    folders, names = _folders(Path(path), DISK)
    opened = [_open(folder, DISK) for folder in folders]
    total = sum(total_bytes(bundle.parts, bundle.kept) for bundle, _ in opened)
    counter = _Counter(progress, total)
    checked = [_check(bundle, found, counter) for bundle, found in opened]
    bundles = [bundle for bundle, _ in checked]
    parts = [part for bundle in bundles for part in bundle.parts]
    kept = [rows for bundle in bundles for rows in bundle.kept]
    ranks = {int(match[1]) for f in folders if (match := RANK_FOLDER.fullmatch(f.name))}
    recording = RecoveredRecording(
        BundleTable(parts, kept),
        outcome=_worst([bundle.outcome for bundle in bundles]),
        config=next((b.config for b in bundles if b.config is not None), None),
        graphs=StoredGraphs(parts, kept),
        missing_ranks=missing_ranks(names, bundles, ranks) if names else (),
    )
    recording.recovery = _together([found for _, found in checked])
    return recording


def _folders(path: Path, disk: Disk) -> tuple[list[Path], list[str]]:
    """The bundle's folder, or those of its ranks and their names."""
    kind = look(path, disk).kind
    if kind != "ranks":
        if kind in ("nothing", "file", "empty", "foreign"):
            raise no_bundle(path)
        return [path], []
    with Folder(path, disk) as folder:
        names = [name for name in folder.names() if RANK_FOLDER.fullmatch(name)]
    begun = [name for name in names if look(path / name, disk).kind in ("finished", "unfinished")]
    return [path / name for name in begun], names


def _open(path: Path, disk: Disk) -> tuple[Opened, Recovery]:
    with Folder(path, disk) as folder:
        names = set(folder.names())
        manifest, finished = _manifest(folder, names)
        segments, lines = _segments(folder, names)
        parts = [Part(segment, path, disk) for segment in segments]
        bundle = Opened(
            path=path,
            manifest=manifest,
            parts=parts,
            kept=kept_rows(parts),
            outcome=_outcome(manifest, finished),
            config=_config(folder, manifest),
        )
    recovery = Recovery(
        finished=finished,
        damaged_lines=len(lines.damaged),
        lost_records=lines.lost_records,
        uncommitted=lines.uncommitted,
        torn=lines.torn,
        reasons=tuple(lines.damaged[:_SHOWN]),
    )
    return bundle, recovery


def _manifest(folder: Folder, names: set[str]) -> tuple[Plain, bool]:
    """What the bundle says of itself and whether it was finished; empty where that cannot be read."""
    for name in (MANIFEST, OPEN_MANIFEST):
        if name in names:
            try:
                return read_manifest(
                    folder.read(name, MANIFEST_LIMIT), str(folder.path / name)
                ), name == MANIFEST
            except BundleVersionError:
                raise
            except BundleError:
                continue
    return {}, False


def _segments(folder: Folder, names: set[str]) -> tuple[list[Segment], Scan]:
    """From the lines; from the columns of finished shards where the lines are gone."""
    if INDEX in names:
        found = scan(folder, skip_damage=True)
        return found.segments, found
    if OPEN_MANIFEST in names:
        # Its writer died before the first line.
        return [], Scan()
    segments, lines = [], Scan(damaged=[f"{INDEX!r} is not there; the columns of finished shards were read"])
    for name in sorted(name for name in names if INDEX_NAME.fullmatch(name)):
        try:
            segments.append(Segment.decode(folder.read(name, INDEX_LIMIT), str(folder.path / name))[0])
        except BundleError as error:
            lines.damaged.append(str(error))
    if not segments:
        raise BundleCorruptError(f"{str(folder.path)!r} holds neither lines nor columns of an index.")
    return segments, lines


def _outcome(manifest: Plain, finished: bool) -> Outcome:
    if finished:
        try:
            return outcome_of(manifest)
        except BundleError:
            return Outcome(status="failed", reason="the manifest is damaged")
    return Outcome(status="interrupted", reason="the writer did not finish; this is what was committed")


def _worst(outcomes: Sequence[Outcome]) -> Outcome:
    return next((outcome for outcome in outcomes if outcome.status != "complete"), Outcome())


def _config(folder: Folder, manifest: Plain) -> dict[str, Any] | None:
    """The config, when it is the one that was written."""
    try:
        return config_of(folder, manifest)
    except BundleError:
        return None


class _Counter:
    """Adds up what is done and tells it on."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def add(self, nbytes: int) -> None:
        self._done += nbytes
        if self._progress is not None:
            self._progress(self._done, self._total)


def _check(bundle: Opened, found: Recovery, counter: _Counter) -> tuple[Opened, Recovery]:
    """Leave out records whose bytes are damaged, and gradients of records that are not."""
    kept, records, gradients, reasons = [], 0, 0, list(found.reasons)
    for part, rows in zip(bundle.parts, bundle.kept):
        bad = damaged_tensors(part, rows, counter.add)
        gone = {tensor.row for tensor in bad if not tensor.gradient} | _unreadable(part, rows)
        for tensor in bad:
            if tensor.gradient and tensor.row not in gone:
                part.gradients.pop(tensor.row)
                gradients += 1
            if len(reasons) < _SHOWN:
                what = "gradient of record" if tensor.gradient else "record"
                reasons.append(f"The {what} {part.segment.first + tensor.row}: {tensor.reason}.")
        records += len(gone)
        kept.append(np.array([row for row in rows.tolist() if row not in gone], np.int64))
    recovery = replace(
        found,
        records=sum(map(len, kept)),
        lost_records=found.lost_records + records,
        lost_gradients=gradients,
        reasons=tuple(reasons),
    )
    return replace(bundle, kept=kept), recovery


def _unreadable(part: Part, rows: np.ndarray) -> set[int]:
    """Rows whose description is damaged."""
    bad: set[int] = set()
    for code in np.unique(part.segment.columns["site"][rows]).tolist():
        try:
            part.site(code)
        except BundleError:
            bad |= set(rows[part.segment.columns["site"][rows] == code].tolist())
    return bad


def _together(found: Sequence[Recovery]) -> Recovery:
    return Recovery(
        records=sum(r.records for r in found),
        finished=all(r.finished for r in found),
        damaged_lines=sum(r.damaged_lines for r in found),
        lost_records=sum(r.lost_records for r in found),
        lost_gradients=sum(r.lost_gradients for r in found),
        uncommitted=sum(r.uncommitted for r in found),
        torn=any(r.torn for r in found),
        reasons=tuple(reason for r in found for reason in r.reasons)[:_SHOWN],
    )
