"""`TlspecSink`: captured steps to a `.tlspec` bundle, written by a thread while training goes on."""

import os
import weakref
from pathlib import Path
from typing import Any, Literal

from tl_integrations.capture.protocols import CapturedStep, Outcome, SinkContext, SinkNeeds
from tl_integrations.errors import BundleError, BundleLimitError
from tl_integrations.options import SummaryOptions
from tl_integrations.storage.begin import begin
from tl_integrations.storage.chunks import bare_chunk, chunk_of
from tl_integrations.storage.closing import abandon, close, not_written
from tl_integrations.storage.filesystem import DISK, Disk
from tl_integrations.storage.opening import bundle_path
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.pending import Pending, Waiting
from tl_integrations.storage.provenance import IDENTITY, Identity

CLOSE_SECONDS = 600.0
"""How long `close` waits for the disk before it gives up and says what was not written."""
NUMBERS_ONLY = SummaryOptions(statistics=("mean", "std", "absmax", "zero_fraction", "nonfinite_fraction"))
"""What a bundle without tensors asks of every record."""


_DEFAULT = WriteOptions()


class TlspecSink:
    """Writes captured steps into a `.tlspec` bundle.

    The calling thread checks the tensors and takes what lies on a GPU to the host; a thread of its own casts,
    sums and writes. A failure there is raised by the next call, once; the step that failed is not in the
    bundle, what was committed before stays, and later steps are tried again.

    In a forked child (a DataLoader's worker) a sink of the parent does nothing, and `write` refuses.

    Args:
        path: Of the new bundle; relative to `context.folder`, or to the working directory.
        context: What is known of the run.
        options: As in `to_disk`.
        kind: What `tl.load` says that it is.
        identity: Where the id, the time and the provenance of the bundle come from.
        disk: Where files are written; tests give another.
    Raises:
        BundleError: whatever `to_disk(...).check` would raise.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        context: SinkContext = SinkContext(),
        options: WriteOptions = _DEFAULT,
        kind: Literal["recording", "trace"] = "recording",
        identity: Identity = IDENTITY,
        disk: Disk = DISK,
    ) -> None:
        self.path: Path = bundle_path(path, context)
        self._options, self._identity, self._disk = options, identity, disk
        self._accepted_bytes = 0
        self._queue = Pending(begin(self.path, options, context, identity, kind, disk), options)
        self._finalizer = weakref.finalize(self, abandon, self._queue, identity)
        _OPEN.add(self)

    @property
    def needs(self) -> SinkNeeds:
        """Tensors, unless `tensors=False`; then the numbers that stand for them."""
        return needs_of(self._options)

    @property
    def closed(self) -> bool:
        """Whether it was closed, or given up after a failure."""
        return self._queue.finished

    def write(self, captured: CapturedStep) -> None:
        """Take one captured step; it is committed when the thread has written it (`flush` waits for that).

        Args:
            captured: Its records; payloads are memory of their own.
        Raises:
            UnsupportedTensorError: for a tensor that cannot be stored; nothing of the step is.
            BundleLimitError: if the step would go beyond `max_bytes`.
            BundleIOError: for what went wrong on the thread since the last call.
        """
        queue = self._usable()
        with queue.changed:
            queue.raise_error()
        records = captured.records
        chunk = chunk_of(records) if self._options.tensors else bare_chunk(records)
        nbytes = sum(chunk.sizes)
        self._check_limit(nbytes, captured)
        if queue.put(Waiting(captured=captured, chunk=chunk, nbytes=nbytes)):
            self._accepted_bytes += nbytes
        else:
            self._count_dropped(captured)

    def flush(self) -> None:
        """Return when all that was written so far is committed.

        Raises:
            BundleIOError: for what went wrong on the thread since the last call.
        """
        queue = self._usable()
        self._drain(CLOSE_SECONDS)
        with queue.changed:
            queue.raise_error()
        queue.begun.appender.flush()

    def close(self, outcome: Outcome = Outcome()) -> None:
        """Write what waits, finish the bundle with its status, and let go of it; a second call does nothing.

        Args:
            outcome: How the run ended.
        Raises:
            BundleIOError: if something could not be written. The manifest then says `failed`, if it could be
                written itself; otherwise the bundle stays unfinished.
        """
        if not self._queue.finished and os.getpid() == self._queue.pid:
            self._finalizer.detach()
            _OPEN.discard(self)
            close(self._queue, outcome, self._identity, CLOSE_SECONDS)

    def __enter__(self) -> "TlspecSink":
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self.close(outcome_after(error))

    def __reduce__(self) -> Any:
        raise TypeError(
            "A TlspecSink holds open files and cannot be pickled or copied; pass `to_disk(path)` instead."
        )

    def _usable(self) -> Pending:
        if os.getpid() != self._queue.pid:
            raise BundleError(
                f"The bundle {str(self.path)!r} was opened by process {self._queue.pid}, not by "
                "this child. Open a sink of its own in the child, at another path."
            )
        if self._queue.finished:
            raise BundleError(f"The bundle {str(self.path)!r} is closed. Open another sink to write more.")
        return self._queue

    def _drain(self, seconds: float) -> None:
        if not self._queue.drain(seconds):
            raise not_written(self._queue, seconds)

    def _check_limit(self, nbytes: int, captured: CapturedStep) -> None:
        limit = self._options.max_bytes
        if limit is not None and self._accepted_bytes + nbytes > limit:
            self._count_dropped(captured)
            raise BundleLimitError(
                f"Step {captured.moment.step} has {nbytes} bytes; with the {self._accepted_bytes} before, "
                f"{str(self.path)!r} would go beyond max_bytes={limit}. Capture less, or raise the limit."
            )

    def _count_dropped(self, captured: CapturedStep) -> None:
        with self._queue.changed:
            self._queue.dropped.dropped_steps += 1
            self._queue.dropped.dropped_records += len(captured.records)


def outcome_after(error: BaseException | None) -> Outcome:
    """How a `with` block ended."""
    if error is None:
        return Outcome()
    status: Literal["failed", "interrupted"] = "failed" if isinstance(error, Exception) else "interrupted"
    return Outcome(status=status, reason=f"{type(error).__name__}: {error}"[:500])


def needs_of(options: WriteOptions) -> SinkNeeds:
    return SinkNeeds(payloads=True) if options.tensors else SinkNeeds(summaries=NUMBERS_ONLY)


_OPEN: "weakref.WeakSet[TlspecSink]" = weakref.WeakSet()


def _let_go_in_child() -> None:
    """A forked child closes its copies of lock and files, so that it never keeps the parent's lock alive."""
    for sink in list(_OPEN):
        sink._finalizer.detach()
        begun = sink._queue.begun
        begun.lock.forget()
        begun.appender.close()
        begun.folder.close()
    _OPEN.clear()


os.register_at_fork(after_in_child=_let_go_in_child)
