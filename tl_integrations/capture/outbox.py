"""Passes that have ended, until somebody takes them: they are drained, written to a storage, or read here."""

from tl_integrations.capture.arena import Arena, Copy, copied
from tl_integrations.capture.passes import Pass, SentPass, captured_step
from tl_integrations.capture.protocols import CapturedStep, Outcome, SinkContext, SinkFactory
from tl_integrations.capture.sinks import LazySink, opened_when_needed


class Outbox:
    """Holds what is pending and what was sent to a storage.

    Args:
        storage: Makes the sink of the storage, which is opened when it is first written; None: there is none.
        selector: What the sink is told of the selection.
    Raises:
        BundleError: if the storage's path is taken or cannot be written.
    """

    def __init__(self, storage: SinkFactory | None, selector: str) -> None:
        context = SinkContext(selector=selector)
        self._sink = None if storage is None else opened_when_needed(storage, lambda: context)
        self._pending: list[Pass] = []
        self._sent: list[SentPass] = []
        self._arena = Arena()

    @property
    def passes(self) -> list[Pass | SentPass]:
        """All that were not drained, in order; without tensors those that went to the storage."""
        return [*self._sent, *self._pending]

    def begin(self, *, watching: bool) -> Copy:
        """A pass begins; those before it go to the storage.

        Args:
            watching: The pass is one that is drained.
        Returns: How its copies are made.
        """
        self._send()
        if self._sink is None and not watching:
            # What stays in memory never gives its memory back to an arena.
            return copied
        self._arena.begin()
        return self._arena.copy

    def add(self, ended: Pass) -> None:
        self._pending.append(ended)

    def drain(self, *, loss_scale: float, accumulate: int) -> CapturedStep:
        """What is pending, as a sink takes it; it is forgotten here."""
        pending, self._pending = self._pending, []
        return captured_step(pending, loss_scale=loss_scale, accumulate=accumulate, copy=self._arena.copy)

    def discard(self) -> None:
        """Forget what is pending; never raises."""
        pending, self._pending = self._pending, []
        for one in pending:
            one.close()

    def flush(self) -> None:
        """Return when all that is pending is committed to the storage."""
        if self._sink is not None:
            self._send()
            self._sink.flush()

    def close(self, outcome: Outcome) -> None:
        """Finish the storage in order, also when nothing was ever written."""
        try:
            self._send()
        finally:
            self._arena.clear()
            if isinstance(self._sink, LazySink):
                self._sink.open()
            if self._sink is not None:
                self._sink.close(outcome)

    def _send(self) -> None:
        if self._sink is not None and self._pending:
            sent = self._pending
            self._sink.write(self.drain(loss_scale=1.0, accumulate=1))
            self._sent += [SentPass(one) for one in sent]
