"""What to say where there is no bundle: what was found instead, and which bundles lie below it."""

import os
from pathlib import Path

from tl_integrations.errors import BundleCorruptError, BundleError, BundleIOError
from tl_integrations.storage.opening import look
from tl_integrations.storage.tlspec import INDEX, MANIFEST, OPEN_MANIFEST, OWN_NAME, RANK_FOLDER
from tl_integrations.storage.torchlens import is_torchlens

_BUNDLES = ("finished", "unfinished", "ranks")
_MOST_FOLDERS = 2000
"""Looked into before the search ends: somebody may have given the root of a disk."""
_MOST_SHOWN = 8


def no_bundle(path: Path) -> BundleError:
    """The error for a path that holds no bundle: it says what is there and what to pass instead."""
    kind = look(path).kind
    if kind == "nothing":
        return BundleIOError(
            f"There is no bundle at {str(path)!r}, seen from {os.getcwd()!r}. Check the path."
        )
    if kind == "file":
        return BundleCorruptError(f"{str(path)!r} is a file, and a bundle is a folder. {_around(path)}")
    if kind == "empty":
        return BundleCorruptError(f"{str(path)!r} is an empty folder, not a .tlspec bundle. Check the path.")
    if is_torchlens(path):
        return BundleCorruptError(
            f"{str(path)!r} is a bundle of TorchLens. `tl.load` opens it; for all else make a .tlspec of it: "
            "`tl-integrations convert BUNDLE TARGET --to tlspec`."
        )
    names = sorted(os.listdir(path))
    shown = ", ".join(map(repr, names[:3])) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
    return BundleCorruptError(
        f"{str(path)!r} is not a .tlspec bundle but a folder with {shown}. {_below(path)}"
    )


def bundles_below(folder: Path) -> list[Path]:
    """Bundles in a folder and its subfolders, in the order of their paths; links are not followed."""
    found = []
    for seen, (here, folders, files) in enumerate(os.walk(folder)):
        if seen >= _MOST_FOLDERS:
            break
        likely = {MANIFEST, OPEN_MANIFEST, INDEX}.intersection(files) or any(map(RANK_FOLDER.match, folders))
        if likely and look(Path(here)).kind in _BUNDLES:
            found.append(Path(here))
            folders.clear()
        folders[:] = sorted(name for name in folders if not name.startswith("."))
    return sorted(found)


def _around(path: Path) -> str:
    if OWN_NAME.fullmatch(path.name) and look(path.parent).kind in _BUNDLES:
        return f"It belongs to the bundle {str(path.parent)!r}: give that path."
    return "Give the path of a folder such as 'run.tlspec'."


def _below(path: Path) -> str:
    found = bundles_below(path)
    if not found:
        return "There is no bundle below it either. Check the path."
    shown = ", ".join(repr(str(bundle)) for bundle in found[:_MOST_SHOWN])
    more = f" and {len(found) - _MOST_SHOWN} more" if len(found) > _MOST_SHOWN else ""
    return f"Give one of the bundles below it: {shown}{more}."
