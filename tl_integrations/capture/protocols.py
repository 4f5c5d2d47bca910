"""The seams of a capture, owned by the side that calls them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, Protocol

from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.oplog import GraphLog
from tl_integrations.options import SummaryOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class CapturedStep:
    """All records of one captured step: what a sink commits as a whole."""

    moment: Moment = field(default_factory=Moment)
    """When the step ran."""
    records: Sequence[Record] = ()
    """In the order of capture."""
    seconds: float = 0.0
    """Seconds that the capture took beyond the forward itself."""
    event_count: int = 0
    """How many events the selector was asked about."""
    graph: GraphLog | None = None
    """The whole forward, when it was logged; `Record.line` points into it."""

    @property
    def nbytes(self) -> int:
        """Bytes of the kept tensors."""
        return sum(record.payload.nbytes for record in self.records if record.payload is not None)

    def joined(self, further: Sequence[Record]) -> "CapturedStep":
        """The same with records that no forward made, such as those of parameters.

        They belong to the forward of their moment, so that their names are the same on every step.

        Args:
            further: Records of the same step.
        """
        if not further:
            return self
        runs = {record.moment: record.run_index for record in reversed(self.records)}
        made = [replace(record, run_index=runs.get(record.moment, record.run_index)) for record in further]
        return replace(self, records=[*self.records, *made])


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    status: Literal["complete", "interrupted", "failed", "halted"] = "complete"
    """`interrupted` by Ctrl-C or a signal, `failed` with an exception, `halted` on purpose."""
    reason: str = ""
    """What ended it, in words; empty for `complete`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """What a sink may know of the run when it opens."""

    config: Mapping[str, Any] | None = None
    """The config that built the model, as plain data."""
    schedule: str = ""
    """The schedule as text that `parse` reads."""
    selector: str = ""
    """What selects the records, as text."""
    rank: int = 0
    """This process among `world_size`, 0-based."""
    world_size: int = 1
    """Processes that train together."""
    ranks: tuple[int, ...] = ()
    """Ranks that keep records; empty: every rank."""
    folder: Path | None = None
    """What relative paths are relative to; None: the working directory."""
    run_id: str = ""
    """Identity of the run: a sink that this very run wrote before may be opened again."""
    resume_step: int | None = None
    """The run was rewound: what was committed at or after this step is superseded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkNeeds:
    """What a sink wants of every record; nothing else is computed or kept for it."""

    payloads: bool = False
    """The tensors themselves, as owned memory."""
    summaries: SummaryOptions = field(default_factory=SummaryOptions)
    """Statistics and histograms of every tensor."""


class Sink(Protocol):
    """Where records go."""

    @property
    def needs(self) -> SinkNeeds:
        """What every record must hold for it."""
        ...

    def write(self, captured: CapturedStep) -> None:
        """Take one captured step; its payloads are owned memory.

        Args:
            captured: The step, which is committed as a whole.
        """
        ...

    def flush(self) -> None:
        """Return when all that was written so far is committed."""
        ...

    def close(self, outcome: Outcome = ...) -> None:
        """Finish in order; a second call does nothing.

        Args:
            outcome: How the run ended.
        """
        ...


class SinkFactory(Protocol):
    """Makes a sink when the first capture is due."""

    @property
    def needs(self) -> SinkNeeds:
        """What every record must hold for it."""
        ...

    def check(self, context: SinkContext) -> None:
        """Raise what `open` would raise for the path, without creating anything.

        Args:
            context: What is known of the run.
        """
        ...

    def open(self, context: SinkContext) -> Sink:
        """Make the sink.

        Args:
            context: What is known of the run.
        """
        ...


class RecordTable(Protocol):
    """Records that are made when asked for: a list in memory, or columns of a bundle."""

    def __len__(self) -> int: ...

    def row(self, index: int) -> Record: ...

    def column(self, name: str) -> Sequence[Any]:
        """One field of all records (`label`, `address`, `step`, ...) without making them."""
        ...

    def find(self, name: str, value: Any) -> Sequence[int]:
        """Rows whose field `name` equals `value`, rising."""
        ...
