"""Sinks that are no format: memory, one that opens late, and what several need together."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from tl_integrations.capture.events import Record
from tl_integrations.capture.protocols import (
    CapturedStep,
    Outcome,
    Sink,
    SinkContext,
    SinkFactory,
    SinkNeeds,
)
from tl_integrations.capture.record_tables import MemoryTable
from tl_integrations.capture.recording import Recording
from tl_integrations.capture.records import without_tensors
from tl_integrations.capture.samples import SAMPLE_IDS
from tl_integrations.errors import CaptureError
from tl_integrations.options import SummaryOptions


class MemorySink:
    """Keeps every captured step in memory, as one recording.

    Args:
        payloads: Keep the tensors, as owned memory.
        summaries: Which statistics to keep of each.
    """

    def __init__(self, *, payloads: bool = True, summaries: SummaryOptions = SummaryOptions()) -> None:
        self.needs: SinkNeeds = SinkNeeds(payloads=payloads, summaries=summaries)
        self._records: list[Record] = []
        self._outcome = Outcome()

    @property
    def recording(self) -> Recording:
        """What was written so far."""
        return Recording(MemoryTable([*self._records]), outcome=self._outcome)

    def write(self, captured: CapturedStep) -> None:
        self._records.extend(captured.records)

    def flush(self) -> None:
        return

    def close(self, outcome: Outcome = Outcome()) -> None:
        self._outcome = outcome


class LazySink:
    """A sink that its factory opens at the first write, so that a run without captures leaves nothing."""

    def __init__(self, factory: SinkFactory, context: Callable[[], SinkContext]) -> None:
        self._factory = factory
        self._context = context
        self._sink: Sink | None = None

    @property
    def needs(self) -> SinkNeeds:
        return self._factory.needs

    def open(self) -> Sink:
        """The sink, opened now if it was not."""
        if self._sink is None:
            self._sink = self._factory.open(self._context())
        return self._sink

    def write(self, captured: CapturedStep) -> None:
        self.open().write(captured)

    def flush(self) -> None:
        if self._sink is not None:
            self._sink.flush()

    def close(self, outcome: Outcome = Outcome()) -> None:
        if self._sink is not None:
            self._sink.close(outcome)
            self._sink = None


def opened_when_needed(sink: Sink | SinkFactory, context: Callable[[], SinkContext]) -> Sink:
    """The sink itself, or one that its factory opens at the first write, having checked the path now.

    Raises:
        CaptureError: for an object that is neither.
        BundleError: if the factory's path is taken or cannot be written.
    """
    if hasattr(sink, "write"):
        return sink  # type: ignore[return-value]
    if not hasattr(sink, "open"):
        raise CaptureError(
            f"{sink!r} is neither a sink nor a sink factory. "
            "Give an object with `write`, or `tl.to_disk(path)`."
        )
    sink.check(context())
    return LazySink(sink, context)


def union_of_needs(needs: Sequence[SinkNeeds]) -> SinkNeeds:
    """What must be kept so that every sink gets what it wants."""
    names = dict.fromkeys(name for need in needs for name in need.summaries.statistics)
    bins = max((need.summaries.histogram_bins for need in needs), default=0)
    return SinkNeeds(
        payloads=any(need.payloads for need in needs),
        summaries=SummaryOptions(statistics=tuple(names), histogram_bins=bins),
    )


def without_payloads(captured: CapturedStep) -> CapturedStep:
    """The same step with statistics and sample ids only, small enough to remember."""
    records = [
        record if record.address == SAMPLE_IDS else without_tensors(record) for record in captured.records
    ]
    return replace(captured, records=records)
