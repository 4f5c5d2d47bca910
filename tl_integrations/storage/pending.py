"""Steps that wait for the disk, and the thread that writes them."""

import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass

from tl_integrations.capture.protocols import CapturedStep, Outcome
from tl_integrations.errors import BundleError, BundleIOError
from tl_integrations.storage.begin import Begun
from tl_integrations.storage.chunks import Chunk
from tl_integrations.storage.opening import backup_of, remove_bundle
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.position import Counts
from tl_integrations.storage.provenance import Identity

EXIT_SECONDS = 10.0
"""How long the interpreter's exit, or the end of a forgotten sink, waits for the disk."""
MOST_WAITING = 1024
"""Steps that may wait whatever their bytes: records without tensors weigh something too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A captured step on its way to the disk."""

    captured: CapturedStep
    chunk: Chunk
    nbytes: int


class Pending:
    """Steps that wait for the disk, bounded in bytes, and the thread that writes them.

    Holds no reference to the sink, so that a forgotten sink can be collected and closed.
    """

    def __init__(self, begun: Begun, options: WriteOptions) -> None:
        self.begun: Begun = begun
        self.options: WriteOptions = options
        self.pid: int = os.getpid()
        self.dropped: Counts = Counts()
        self.changed: threading.Condition = threading.Condition()
        self.waiting: deque[Waiting] = deque()
        self.pending_bytes: int = 0
        self.busy: bool = False
        self.stopping: bool = False
        self.finished = False
        self.error: BaseException | None = None
        self.unflushed: list[str] = []
        self.thread: threading.Thread = threading.Thread(target=self._work, name="tlspec-writer", daemon=True)
        self.thread.start()

    def put(self, step: Waiting) -> bool:
        """Enqueue; False when the step was left out because the queue is full."""
        with self.changed:
            self.raise_error()
            if self.options.on_full == "drop_newest" and not self._fits(step):
                return False
            while not self._fits(step):
                self.changed.wait()
                self.raise_error()
            self.waiting.append(step)
            self.pending_bytes += step.nbytes
            self.changed.notify_all()
            return True

    def drain(self, seconds: float) -> bool:
        """Wait until nothing is left to write; False when the time ran out."""
        with self.changed:
            return self.changed.wait_for(lambda: not self.waiting and not self.busy, seconds)

    def stop(self) -> None:
        with self.changed:
            self.stopping = True
            self.changed.notify_all()

    def raise_error(self) -> None:
        """Raise, once, what went wrong on the thread."""
        error, self.error = self.error, None
        try:
            _raise_again(error)
        finally:
            del error

    def _fits(self, step: Waiting) -> bool:
        if not self.waiting and not self.busy:
            return True
        if len(self.waiting) >= MOST_WAITING:
            return False
        return self.pending_bytes + step.nbytes <= self.options.max_pending_bytes

    def _work(self) -> None:
        while True:
            with self.changed:
                self.changed.wait_for(lambda: bool(self.waiting) or self.stopping)
                if not self.waiting:
                    return
                step = self.waiting.popleft()
                self.busy = True
            error = self._write(step)
            nbytes = step.nbytes
            del step
            with self.changed:
                self.pending_bytes -= nbytes
                self.busy = False
                if error is not None:
                    self.error = self.error or error
                    self.dropped.lost_steps += 1
                del error
                self.changed.notify_all()

    def _write(self, step: Waiting) -> BaseException | None:
        try:
            self.begun.appender.commit(step.captured, step.chunk)
        except BaseException as error:
            return error
        return None


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
        _raise_again(error)
    finally:
        del error


def _raise_again(error: BaseException | None) -> None:
    """Raise an error whose frames are not to have it: such a circle would keep the step's tensors alive."""
    try:
        if error is not None:
            raise error
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
