"""A sink that is opened when the first step is due."""

from tl_integrations.capture.protocols import CapturedStep, Outcome, Sink, SinkContext, SinkFactory


class Outbox:
    """Checks a factory at once, opens its sink late."""

    def __init__(self, factory: SinkFactory, selector: str) -> None:
        self._factory = factory
        self._context = SinkContext(selector=selector)
        self._sink: Sink | None = None
        factory.check(self._context)

    def write(self, step: CapturedStep) -> None:
        """Open the sink if need be, and give it a step."""
        if self._sink is None:
            self._sink = self._factory.open(self._context)
        self._sink.write(step)

    def flush(self) -> None:
        """Return when all is committed."""
        if self._sink is not None:
            self._sink.flush()

    def close(self, outcome: Outcome) -> None:
        """Finish in order, also when nothing was ever written."""
        if self._sink is None:
            self._sink = self._factory.open(self._context)
        self._sink.close(outcome)
