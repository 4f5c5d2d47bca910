"""Passes that have ended, until somebody takes them: they are drained, written to a storage, or read here."""

from tl_integrations.capture.arena import Arena, Copy, copied
from tl_integrations.capture.passes import Pass, SentPass, captured_step
from tl_integrations.capture.protocols import CapturedStep, Outcome, Sink, SinkContext, SinkFactory


class Outbox:
    """Holds what is pending and what was sent; checks a storage at once, opens its sink late.

    Args:
        factory: Makes the sink of the storage; None: there is none.
        selector: What the sink is told of the selection.
    """

    def __init__(self, factory: SinkFactory | None, selector: str) -> None:
        self._factory = factory
        self._context = SinkContext(selector=selector)
        self._sink: Sink | None = None
        self._pending: list[Pass] = []
        self._sent: list[SentPass] = []
        self._arena = Arena()
        if factory is not None:
            factory.check(self._context)

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
        if self._factory is None and not watching:
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
        self._send()
        if self._sink is not None:
            self._sink.flush()

    def close(self, outcome: Outcome) -> None:
        """Finish the storage in order, also when nothing was ever written."""
        try:
            self._send()
        finally:
            self._arena.clear()
            if self._factory is not None:
                self._opened(self._factory).close(outcome)

    def _send(self) -> None:
        if self._factory is None or not self._pending:
            return
        sent = self._pending
        self._opened(self._factory).write(self.drain(loss_scale=1.0, accumulate=1))
        self._sent += [SentPass(one) for one in sent]

    def _opened(self, factory: SinkFactory) -> Sink:
        if self._sink is None:
            self._sink = factory.open(self._context)
        return self._sink
