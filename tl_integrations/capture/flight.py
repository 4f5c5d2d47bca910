"""FlightRecorder: captured steps that are written only once something happened."""

from collections import deque

from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.capture.sinks import without_payloads


class FlightRecorder:
    """Holds the statistics of the newest captured steps until a reactive schedule has a reason.

    Args:
        limit: How many steps are held; 0: none, every captured step is written at once.
    """

    def __init__(self, limit: int) -> None:
        self._held: deque[CapturedStep] | None = deque(maxlen=limit) if limit else None

    def released(self, captured: CapturedStep, reason: str | None) -> list[CapturedStep]:
        """What is to be written now: the step, after those that led to it; or nothing yet.

        Args:
            captured: The step that was just captured.
            reason: The event it was captured for; None: it was only scheduled.
        """
        if self._held is None or captured.moment.stage != "train":
            return [captured]
        if reason is None:
            self._held.append(without_payloads(captured))
            return []
        led_to_it = list(self._held)
        self._held.clear()
        return [*led_to_it, captured]
