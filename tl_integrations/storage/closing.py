"""The end of a sink: what waits is written, the bundle gets its status, files and lock are let go."""

import os
from contextlib import suppress

from tl_integrations.capture.protocols import Outcome
from tl_integrations.errors import BundleError, BundleIOError
from tl_integrations.storage.opening import backup_of, remove_bundle
from tl_integrations.storage.pending import Pending, raise_again
from tl_integrations.storage.provenance import Identity

EXIT_SECONDS = 10.0
"""How long the interpreter's exit, or the end of a forgotten sink, waits for the disk."""


def close(queue: Pending, outcome: Outcome, identity: Identity, seconds: float) -> None:
    """Drain, stop the thread and finish; files and lock are let go whatever happens."""
    queue.finished = True
    try:
        drained = queue.drain(seconds)
        error = queue.error if drained else not_written(queue, seconds)
        queue.error = None
        queue.stop()
        if drained:
            queue.thread.join(seconds)
            error = _finish(queue, outcome, identity, error)
    finally:
        # A thread that still writes keeps its files; the bundle stays unfinished.
        if not queue.thread.is_alive():
            queue.begun.close()
    try:
        raise_again(error)
    finally:
        del error


def _finish(
    queue: Pending, outcome: Outcome, identity: Identity, error: BaseException | None
) -> BaseException | None:
    """Publish the manifest; the first error is the one that counts, a later one is attached to it."""
    counts, dropped = queue.begun.appender.position.counts, queue.dropped
    counts.dropped_steps += dropped.dropped_steps
    counts.dropped_records += dropped.dropped_records
    counts.lost_steps += dropped.lost_steps
    if counts.lost_steps and outcome.status == "complete":
        outcome = Outcome(status="failed", reason=f"{counts.lost_steps} captured steps could not be written")
    try:
        queue.begun.appender.finish(outcome, identity.now())
    except Exception as failed:
        if error is None:
            return failed
        error.add_note(f"The bundle could not be finished either: {failed}")
        return error
    backup = backup_of(queue.begun.folder.path)
    if queue.options.overwrite and backup.is_dir():
        with suppress(BundleError, OSError):
            remove_bundle(backup, queue.begun.folder.disk)
    return error


def not_written(queue: Pending, seconds: float) -> BundleIOError:
    with queue.changed:
        steps = [waiting.captured.moment.step for waiting in queue.waiting]
        waiting = queue.pending_bytes
    shown = ", ".join(map(str, steps[:8])) + (", ..." if len(steps) > 8 else "")
    return BundleIOError(
        f"{str(queue.begun.folder.path)!r}: the disk did not take {waiting} bytes within {seconds:.0f} s. "
        f"Not written: {len(steps)} steps ({shown}) and the one in hand. `tl.recover(path)` reads the rest."
    )


def abandon(queue: Pending, identity: Identity) -> None:
    """End the bundle of a sink that nobody closed: the interpreter exits, or the sink was forgotten."""
    if not queue.finished and os.getpid() == queue.pid:
        outcome = Outcome(status="interrupted", reason="the sink was never closed")
        with suppress(Exception):
            close(queue, outcome, identity, EXIT_SECONDS)
