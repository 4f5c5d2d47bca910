"""`verify`: every byte of a bundle against every checksum. Reads only."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tl_integrations.errors import BundleError
from tl_integrations.storage.checking import Progress, damaged_tensors, total_bytes
from tl_integrations.storage.filesystem import DISK, Folder
from tl_integrations.storage.reader import Opened, open_all
from tl_integrations.storage.shard_sums import shard_entry
from tl_integrations.storage.tlspec import OWN_NAME


@dataclass(frozen=True, slots=True, kw_only=True)
class Verification:
    """What was checked, and everything that did not fit."""

    records: int = 0
    nbytes: int = 0
    """Bytes of tensors."""
    problems: tuple[str, ...] = ()
    """One sentence each; empty: the bundle is whole."""
    strangers: tuple[str, ...] = ()
    """Files in the folder that are not of the format; they are ignored."""

    @property
    def whole(self) -> bool:
        return not self.problems


def verify(path: str | os.PathLike[str], *, progress: Progress | None = None) -> Verification:
    """Check manifest, index, columns, shards and every tensor of a finished bundle.

    Args:
        path: Of the bundle.
        progress: Called with bytes checked and bytes in all.
    """
    try:
        bundles, missing = open_all(Path(path), live=False)
    except BundleError as error:
        return Verification(problems=(str(error),))
    problems = [f"Rank {rank} did not finish, or is not there." for rank in missing]
    total = sum(total_bytes(bundle.parts, bundle.kept) for bundle in bundles)
    done = 0

    def count(nbytes: int) -> None:
        nonlocal done
        done += nbytes
        if progress is not None:
            progress(done, total)

    for bundle in bundles:
        problems += _problems_of_tensors(bundle, count)
        problems += _problems_of_shards(bundle)
    return Verification(
        records=sum(len(rows) for bundle in bundles for rows in bundle.kept),
        nbytes=total,
        problems=tuple(problems),
        strangers=tuple(name for bundle in bundles for name in _strangers(bundle)),
    )


def _problems_of_tensors(bundle: Opened, count: Callable[[int], None]) -> list[str]:
    found = []
    for part, rows in zip(bundle.parts, bundle.kept):
        for bad in damaged_tensors(part, rows, count):
            what = "gradient of record" if bad.gradient else "record"
            found.append(f"The {what} {part.segment.first + bad.row} in {str(bundle.path)!r}: {bad.reason}.")
    return found


def _problems_of_shards(bundle: Opened) -> list[str]:
    found = []
    with Folder(bundle.path, DISK) as folder:
        for entry in bundle.manifest["shards"]:
            try:
                if shard_entry(folder, entry["name"]) != {
                    key: entry[key] for key in ("name", "nbytes", "sum")
                }:
                    found.append(f"{str(bundle.path / entry['name'])!r} is not the shard that was written.")
            except BundleError as error:
                found.append(str(error))
    return found


def _strangers(bundle: Opened) -> list[str]:
    with Folder(bundle.path, DISK) as folder:
        return [name for name in folder.names() if not OWN_NAME.fullmatch(name)]
