"""What a monitor remembers of each step that it captured."""

from dataclasses import dataclass

from tl_integrations.capture.protocols import CapturedStep


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureSummary:
    """One captured step, as `captures` lists it."""

    step: int | None
    """Its number; None outside of a numbered loop."""
    stage: str
    """`"train"`, `"validate"`, `"test"` or `"predict"`."""
    seconds: float
    """Seconds the capture took beyond the forward, writing included."""
    nbytes: int
    """Bytes of the tensors that were kept."""
    records: int
    """How many records it has."""
    reason: str | None = None
    """The event that a reactive schedule captured it for, in words."""


def summary_of(captured: CapturedStep, seconds: float, reason: str | None) -> CaptureSummary:
    """The summary of a step that took so many seconds beyond its forward."""
    return CaptureSummary(
        step=captured.moment.step,
        stage=captured.moment.stage,
        seconds=seconds,
        nbytes=captured.nbytes,
        records=len(captured.records),
        reason=reason,
    )
