"""Steps that wait for the disk, and the thread that writes them."""

import os
import threading
from collections import deque
from dataclasses import dataclass

from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.storage.begin import Begun
from tl_integrations.storage.chunks import Chunk
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.position import Counts

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
            raise_again(error)
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


def raise_again(error: BaseException | None) -> None:
    """Raise an error whose frames are not to have it: such a circle would keep the step's tensors alive."""
    try:
        if error is not None:
            raise error
    finally:
        del error
