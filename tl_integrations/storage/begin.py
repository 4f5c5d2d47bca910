"""Beginning a bundle: its folder, lock and first files, or the reopened ones of an earlier writer."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tl_integrations.capture.protocols import SinkContext
from tl_integrations.errors import BundleBusyError
from tl_integrations.storage.appender import Appender
from tl_integrations.storage.continuing import reopen
from tl_integrations.storage.filesystem import Disk, Folder, io_errors, sync_folder
from tl_integrations.storage.lock import Lock
from tl_integrations.storage.opening import decide, make_folders, remove_bundle, set_aside
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.plain_yaml import write_config
from tl_integrations.storage.position import Position
from tl_integrations.storage.provenance import Identity
from tl_integrations.storage.tensors import DTYPE_NAMES
from tl_integrations.storage.tlspec import (
    CONFIG,
    FORMAT,
    LOCK,
    OPEN_MANIFEST,
    VERSION,
    Plain,
    sum_of,
    write_manifest,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """An open bundle."""

    folder: Folder
    lock: Lock
    appender: Appender

    def close(self) -> None:
        """Let go of everything, whether finished or not."""
        self.appender.close()
        self.lock.release()
        self.folder.close()


def begin(
    path: Path, options: WriteOptions, context: SinkContext, identity: Identity, kind: str, disk: Disk
) -> Begun:
    """Make or reopen the bundle at `path`; when that fails, nothing new stays behind."""
    config = None if context.config is None else write_config(context.config)
    way = decide(path, options, context, disk)
    if way == "continue":
        return _continue(path, options, context, config, disk)
    if way == "replace":
        with io_errors("set aside", path):
            set_aside(path, disk)
    about = _about(options, context, identity, kind, config)
    return _create(path, options, about, config, disk)


def _create(path: Path, options: WriteOptions, about: Plain, config: bytes | None, disk: Disk) -> Begun:
    # An empty folder may be a rank's, left by a writer that died before its first file.
    if not (path.is_dir() and not any(path.iterdir())):
        make_folders(path, disk)
    lock = folder = appender = None
    try:
        folder = Folder(path, disk)
        with io_errors("begin", path):
            lock = Lock(folder)
            if config is not None:
                folder.publish(CONFIG, config, sync_folder=False)
            folder.publish(OPEN_MANIFEST, write_manifest(about), sync=False)
            appender = Appender(folder, options, about, Position())
            if options.durability == "power":
                folder.sync()
                sync_folder(path.parent, disk)
    except BaseException as error:
        if appender is not None:
            appender.close()
        _clear(path, folder, lock, disk, ours=not isinstance(error, BundleBusyError))
        raise
    return Begun(folder=folder, lock=lock, appender=appender)


def _clear(path: Path, folder: Folder | None, lock: Lock | None, disk: Disk, *, ours: bool) -> None:
    """Remove what a bundle that could not begin left behind; one that another writer took stays."""
    with suppress(Exception):
        if lock is not None:
            lock.forget()
            remove_bundle(path, disk)
        elif folder is not None and ours:
            folder.unlink(LOCK)
    if folder is not None:
        folder.close()
    with suppress(OSError):
        disk.remove_folder(str(path))


def _continue(
    path: Path, options: WriteOptions, context: SinkContext, config: bytes | None, disk: Disk
) -> Begun:
    folder = Folder(path, disk)
    lock = None
    try:
        with io_errors("reopen", path):
            lock = Lock(folder)
            about, position = reopen(folder, durable=options.durability == "power")
            about = {key: value for key, value in about.items() if key not in _CHANGING}
            if config is not None and sum_of(config) != (about.get("config") or {}).get("sum"):
                folder.publish(CONFIG, config, sync_folder=False)
                about["config"] = _entry(config)
            about |= {"run_id": context.run_id}
            folder.publish(OPEN_MANIFEST, write_manifest(about), sync=False)
            appender = Appender(folder, options, about, position, rewind=context.resume_step, continued=True)
    except BaseException:
        if lock is not None:
            lock.release()
        folder.close()
        raise
    return Begun(folder=folder, lock=lock, appender=appender)


_CHANGING = ("finished", "status", "reason", "counts", "next", "shards", "indexes", "index")


def _entry(content: bytes) -> Plain:
    return {"nbytes": len(content), "sum": sum_of(content)}


def _about(
    options: WriteOptions, context: SinkContext, identity: Identity, kind: str, config: bytes | None
) -> dict[str, Any]:
    """What the manifest says from the start."""
    reductions = {
        "tensors": options.tensors,
        "dtype": None if options.dtype is None else DTYPE_NAMES[options.dtype],
        "samples": options.samples,
    }
    return {
        "format": FORMAT,
        "version": VERSION,
        "id": identity.new_id(),
        "run_id": context.run_id,
        "kind": kind,
        "created": identity.now(),
        "producer": identity.producer(),
        "provenance": identity.provenance(),
        "rank": context.rank,
        "world_size": context.world_size,
        "ranks": list(context.ranks),
        "schedule": context.schedule,
        "selector": context.selector,
        "reductions": reductions,
        "config": None if config is None else _entry(config),
    }
