"""What stands at a path, and how a writer may begin there: afresh, instead of it, or going on with it."""

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tl_integrations.capture.protocols import SinkContext
from tl_integrations.errors import (
    BundleBusyError,
    BundleError,
    BundleExistsError,
    BundleIOError,
    BundleNotFinalizedError,
    BundleUnsafePathError,
)
from tl_integrations.storage.filesystem import DISK, Disk, Folder, as_io_error
from tl_integrations.storage.lock import is_held
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.tlspec import (
    CONFIG,
    INDEX,
    LOCK,
    MANIFEST,
    MANIFEST_LIMIT,
    OPEN_MANIFEST,
    OWN_NAME,
    RANK_FOLDER,
    Plain,
    rank_folder,
    read_manifest,
)

Kind = Literal["nothing", "file", "link", "empty", "foreign", "finished", "unfinished", "ranks"]
Way = Literal["create", "replace", "continue"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is at a path now."""

    kind: Kind
    manifest: Plain | None = None
    """Of a bundle, finished or not; None when it cannot be read."""
    strangers: tuple[str, ...] = ()
    """Names in a bundle's folder that are not of its format."""
    busy: bool = False


def bundle_path(path: str | os.PathLike[str], context: SinkContext) -> Path:
    """Where the bundle lies: relative paths under the context's folder, each of several ranks in its own.

    Raises:
        BundleUnsafePathError: for an empty path, a NUL character, or a URL.
    """
    text = os.fspath(path)
    if not isinstance(text, str) or not text or "\0" in text:
        raise BundleUnsafePathError(f"{text!r} is not a path for a bundle. Give a path such as 'run.tlspec'.")
    if "://" in text:
        raise BundleUnsafePathError(
            f"{text!r} is a remote address. A bundle is written to a local folder; copy it afterwards."
        )
    whole = (context.folder or Path.cwd()) / Path(text).expanduser()
    return whole / rank_folder(context.rank, context.world_size) if in_rank_folder(context) else whole


def in_rank_folder(context: SinkContext) -> bool:
    """Whether several ranks keep records, each in a folder of its own."""
    return len(context.ranks) > 1 or (not context.ranks and context.world_size > 1)


def look(path: Path, disk: Disk = DISK) -> Standing:
    """What stands at `path`; nothing is created or changed."""
    try:
        found = disk.status(path)
    except (FileNotFoundError, NotADirectoryError):
        return Standing(kind="nothing")
    except OSError as error:
        raise as_io_error(error, "look at", path) from error
    if stat.S_ISLNK(found.st_mode):
        return Standing(kind="link")
    if not stat.S_ISDIR(found.st_mode):
        return Standing(kind="file")
    with Folder(path, disk) as folder:
        return _look_inside(folder)


def _look_inside(folder: Folder) -> Standing:
    names = folder.names()
    if not names:
        return Standing(kind="empty")
    if all(RANK_FOLDER.fullmatch(name.removesuffix(".bak")) for name in names):
        return Standing(kind="ranks")
    strangers = tuple(name for name in names if not OWN_NAME.fullmatch(name))
    for name, kind in ((MANIFEST, "finished"), (OPEN_MANIFEST, "unfinished")):
        if name in names:
            manifest = manifest_of(folder, name)
            # A manifest that is no manifest of ours makes the folder somebody else's.
            if manifest is None and not _has_own_files(names):
                return Standing(kind="foreign")
            busy = is_held(folder)
            found: Kind = "finished" if kind == "finished" else "unfinished"
            return Standing(kind=found, manifest=manifest, strangers=strangers, busy=busy)
    if _has_own_files(names):
        return Standing(kind="unfinished", strangers=strangers, busy=is_held(folder))
    return Standing(kind="foreign")


def _has_own_files(names: list[str]) -> bool:
    """Whether they are a bundle's without its manifest; a config of somebody else's is not."""
    begun = {LOCK, CONFIG, f"{CONFIG}.tmp", f"{OPEN_MANIFEST}.tmp"}
    return INDEX in names or OPEN_MANIFEST in names or (LOCK in names and begun.issuperset(names))


def manifest_of(folder: Folder, name: str) -> Plain | None:
    try:
        return read_manifest(folder.read(name, MANIFEST_LIMIT), str(folder.path / name))
    except (BundleError, OSError):
        return None


def decide(path: Path, options: WriteOptions, context: SinkContext, disk: Disk = DISK) -> Way:
    """How to begin at `path`; refuses, with the choices, where nothing may be written.

    Raises:
        BundleExistsError: the path is taken and no option says what to do with it.
        BundleBusyError: another writer holds the bundle.
        BundleUnsafePathError: it is a symbolic link.
        BundleIOError: it could not be made there.
    """
    _check_neighbours(path, context, disk)
    standing = look(path, disk)
    if standing.kind == "nothing":
        _check_parents(path, disk)
        return "create"
    if standing.kind == "empty" and in_rank_folder(context):
        return "create"
    if standing.busy:
        raise BundleBusyError(
            f"{str(path)!r} is being written by another process. Wait for it, or choose another path."
        )
    refusal = _REFUSALS.get(standing.kind)
    if refusal is not None:
        raise refusal[0](f"{str(path)!r} {refusal[1]}")
    if context.run_id and (standing.manifest or {}).get("run_id") == context.run_id:
        return "continue"
    if options.resume:
        return "continue"
    if options.overwrite:
        if standing.strangers:
            raise BundleExistsError(
                f"{str(path)!r} holds files that are not of a bundle ({', '.join(standing.strangers[:3])}), "
                "so it is not replaced. Move them out, or choose another path."
            )
        return "replace"
    state = "a finished bundle" if standing.kind == "finished" else "a bundle that was not finished"
    recover = "" if standing.kind == "finished" else " `tl.recover(path)` reads what it holds."
    raise BundleExistsError(
        f"{str(path)!r} is {state}.{recover} Choose another path, or say "
        f"`tl.to_disk({str(path)!r}, overwrite=True)` to replace it, `resume=True` to go on with it."
    )


_REFUSALS: dict[str, tuple[Callable[[str], BundleError], str]] = {
    "file": (BundleExistsError, "is a file. A bundle is a folder: choose another path."),
    "link": (BundleUnsafePathError, "is a symbolic link. Give the path that it points to."),
    "empty": (BundleExistsError, "is a folder that exists already. Remove it, or choose another path."),
    "foreign": (BundleExistsError, "is a folder with other files, not a bundle. Choose another path."),
    "ranks": (BundleExistsError, "holds a bundle of several ranks. Choose another path, or remove it."),
}


def _check_neighbours(path: Path, context: SinkContext, disk: Disk) -> None:
    """Beside a rank's folder may be other ranks of the same run, and nothing else."""
    if not in_rank_folder(context):
        return
    whole = look(path.parent, disk)
    if whole.kind not in ("nothing", "empty", "ranks"):
        raise BundleExistsError(f"{str(path.parent)!r} is taken by something else. Choose another path.")
    if whole.kind == "ranks":
        with Folder(path.parent, disk) as folder:
            names = [RANK_FOLDER.fullmatch(name.removesuffix(".bak")) for name in folder.names()]
        others = {int(name[2]) for name in names if name} - {context.world_size}
        if others:
            raise BundleExistsError(
                f"{str(path.parent)!r} holds a bundle of {others.pop()} ranks; this run has "
                f"{context.world_size}. Choose another path, or remove it."
            )


def _check_parents(path: Path, disk: Disk) -> None:
    """The nearest parent that exists must be a folder that we may write."""
    for parent in path.parents:
        try:
            found = os.stat(parent)
        except FileNotFoundError:
            if parent.is_symlink():
                raise BundleUnsafePathError(
                    f"{str(parent)!r}, a parent of the bundle, is a symbolic link to nothing."
                ) from None
            continue
        except NotADirectoryError:
            continue
        except OSError as error:
            raise as_io_error(error, "look at", parent) from error
        if not stat.S_ISDIR(found.st_mode):
            raise BundleIOError(
                f"Cannot make the bundle {str(path)!r}: {str(parent)!r} is a file, not a folder. "
                "Choose another path."
            )
        if not disk.call("access", os.access, parent, os.W_OK | os.X_OK):
            raise BundleIOError(
                f"Cannot make the bundle {str(path)!r}: the folder {str(parent)!r} may not be written. "
                "Choose another path."
            )
        return


def make_folders(path: Path, disk: Disk) -> None:
    """The bundle's folder and its missing parents; the last one must be new."""
    missing = []
    for parent in path.parents:
        if parent.exists():
            break
        missing.append(parent)
    for parent in reversed(missing):
        try:
            disk.make_folder(str(parent))
        except FileExistsError:
            continue
        except OSError as error:
            raise as_io_error(error, "make the folder", parent) from error
    try:
        disk.make_folder(str(path))
    except FileExistsError as error:
        raise BundleExistsError(
            f"{str(path)!r} was made by another process just now. Choose another path."
        ) from error
    except OSError as error:
        raise as_io_error(error, "make the bundle", path) from error


def set_aside(path: Path, disk: Disk) -> None:
    """Before a replacement: a finished bundle is kept as `.bak` until the new one is finished."""
    backup = backup_of(path)
    if look(backup, disk).kind != "nothing" and look(path, disk).kind == "unfinished":
        remove_bundle(path, disk)
        return
    remove_bundle(backup, disk)
    disk.rename(str(path), str(backup))


def backup_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.bak")


def remove_bundle(path: Path, disk: Disk) -> None:
    """Delete a bundle: the manifest first, so that what is left of it is never taken for whole."""
    standing = look(path, disk)
    if standing.kind == "nothing":
        return
    if standing.kind not in ("finished", "unfinished") or standing.strangers or standing.busy:
        raise BundleExistsError(
            f"{str(path)!r} is in the way and is not only a bundle. Move it, then try again."
        )
    with Folder(path, disk) as folder:
        for name in sorted(folder.names(), key=lambda name: not name.startswith(MANIFEST)):
            folder.unlink(name)
    disk.remove_folder(str(path))


def not_finalized(path: Path, reason: str = "It has no manifest") -> BundleNotFinalizedError:
    """The error for a bundle whose writer did not end in order."""
    backup = backup_of(path)
    kept = f" The bundle that it was to replace is at {str(backup)!r}." if backup.is_dir() else ""
    return BundleNotFinalizedError(
        f"{str(path)!r} was not finished. {reason}: its writer is still running, or ended abruptly. "
        f"`tl.recover(path)` reads what was committed; `tl.load(path, live=True)` what is there so far.{kept}"
    )
