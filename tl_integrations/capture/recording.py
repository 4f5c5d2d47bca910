"""The result of a capture: records, found by label, address, pass and step."""

import copy
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, overload

from torch import Tensor

from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.failure import Failure
from tl_integrations.capture.graph import Trace, build
from tl_integrations.capture.lookup import find_rows, no_record
from tl_integrations.capture.oplog import GraphLog
from tl_integrations.capture.protocols import Outcome, RecordTable
from tl_integrations.capture.record_tables import PartOfTable
from tl_integrations.capture.records import event_of
from tl_integrations.capture.selector import Selector
from tl_integrations.capture.selector_text import as_selector
from tl_integrations.capture.wording import in_words
from tl_integrations.errors import (
    AmbiguousRecordError,
    CaptureError,
    RecordingFailedError,
    RecordLookupError,
)


class Recording:
    """What was captured, in capture order.

    An int gives a record, a slice a narrower recording, a text the one record it names: a label
    (`"relu_1_2"`), a short or raw label, a module address (`"encoder.attn"`) or the last part of exactly
    one address, each with `:k` for the k-th pass and an output path such as `[0]`.

    Args:
        table: The records.
        outcome: How the run ended.
        config: The config that built the model, as plain data.
        graphs: The logged forwards, by moment and run.
        aliases: Further names of modules, with the name that records carry.
        failure: What is known of a forward that failed.
        output: The model's output as a tuple of one, or nothing where it is not known.
        missing_ranks: Ranks of a distributed run whose records are not there.
    """

    def __init__(
        self,
        table: RecordTable,
        *,
        outcome: Outcome = Outcome(),
        config: Mapping[str, Any] | None = None,
        graphs: Mapping[tuple[Moment, int], GraphLog] | None = None,
        aliases: Mapping[str, str] | None = None,
        failure: Failure | None = None,
        output: tuple[Any, ...] = (),
        missing_ranks: tuple[int, ...] = (),
    ) -> None:
        self._table = table
        self._graphs = graphs or {}
        self._aliases = aliases or {}
        self._output = output
        self.failure: Failure = failure or Failure()
        self.outcome = outcome
        self.config = config
        self.missing_ranks = missing_ranks

    @property
    def table(self) -> RecordTable:
        """The records as a table: single rows and whole columns."""
        return self._table

    @property
    def graphs(self) -> Mapping[tuple[Moment, int], GraphLog]:
        """The logged forwards, by moment and run."""
        return self._graphs

    @property
    def records(self) -> list[Record]:
        """Every record, in capture order."""
        return list(self)

    @property
    def status(self) -> str:
        """`complete`, `halted`, `interrupted`, or `partial_error` after a failed forward or run."""
        return "partial_error" if self.outcome.status == "failed" else self.outcome.status

    @property
    def failed(self) -> bool:
        """Whether the forward, or the run, ended with an exception."""
        return self.outcome.status == "failed"

    @property
    def halted(self) -> bool:
        """Whether `halt`, or a budget, ended it."""
        return self.outcome.status == "halted"

    @property
    def halt_reason(self) -> str | None:
        """What ended it, in words; None where nothing did."""
        return self.outcome.reason if self.halted else None

    @property
    def output(self) -> Any:
        """What the model returned.

        Raises:
            RecordingFailedError: if its forward failed (`code="output_forward_failed"`).
            RecordLookupError: if the recording does not know it: it was read from disk, or has many passes.
        """
        if self.failed:
            raise RecordingFailedError(
                f"The forward failed ({self.outcome.reason}), so there is no output.",
                code="output_forward_failed",
            )
        if not self._output:
            raise RecordLookupError(
                "This recording does not hold the model's output: it was read from disk, or the calls were "
                "yours. Take it from the call itself, or record one with `tl.record(model, x)`."
            )
        return self._output[0]

    @property
    def error_repr(self) -> str:
        """The exception of a failed forward as its repr; empty where there was none."""
        return self.failure.error_repr

    @property
    def error_traceback(self) -> str:
        """Its traceback as text; empty where there was none."""
        return self.failure.error_traceback

    @property
    def num_committed_ops(self) -> int | None:
        """Ops that ended before the forward failed; None where not every op was seen."""
        return self.failure.num_committed_ops

    @property
    def last_successful_op_label(self) -> str | None:
        """Label in flight of the last op that ended before the forward failed; None where none is known."""
        return self.failure.last_successful_op_label

    @property
    def last_event_label(self) -> str | None:
        """Label in flight of the last op that was seen; the same one."""
        return self.failure.last_event_label

    @property
    def last_event_func(self) -> str | None:
        """The function that raised; None when the exception came from Python code between ops."""
        return self.failure.last_event_func

    @property
    def last_event_source_line(self) -> str | None:
        """File and line of the last op that ended, in the user's code."""
        return self.failure.last_event_source_line

    @property
    def last_event_input_meta(self) -> str | None:
        """Shapes of the arguments of the call that raised."""
        return self.failure.last_event_input_meta

    @property
    def graph(self) -> GraphLog:
        """The log of the one forward that the records come from.

        After a failure it holds what ran before.

        Raises: RecordingFailedError if there are several forwards; CaptureError if it was not logged.
        """
        moments, runs = self._table.column("moment"), self._table.column("run_index")
        # Records of one forward share their moment, which takes longer to hash than to tell by its id.
        keys = set({(id(m), run): (m, run) for m, run in zip(moments, runs)}.values()) or set(self._graphs)
        if len(keys) > 1:
            raise RecordingFailedError(
                f"The recording holds {len(keys)} forwards. Narrow it to one with `.at(step)` or a slice.",
                code="recording_multipass_not_convertible",
            )
        graph = self._graphs.get(keys.pop()) if keys else None
        if graph is None:
            raise CaptureError("The ops of this forward were not logged. Record with graph=True.")
        return graph

    def to_trace(self) -> Trace:
        """The full graph of the forward, with the tensors that are in this recording.

        Raises:
            RecordingFailedError: if the forward failed, or there are several.
            CaptureError: if its ops were not logged (`graph=False`).
        """
        if self.failed:
            raise RecordingFailedError(
                f"The forward failed ({self.outcome.reason}), so its graph is not whole.",
                code="recording_failed_not_convertible",
            )
        return build(self.graph, self, self.outcome)

    def backward(
        self, loss: Tensor, *, retain_graph: bool | None = None, create_graph: bool = False
    ) -> "Recording":
        """Run `loss.backward()`; records made with gradients=True then have `.grad`.

        Args:
            loss: A scalar that was computed from the forward's results.
            retain_graph: As for `Tensor.backward`.
            create_graph: As for `Tensor.backward`.
        Raises: RecordingFailedError if the forward failed or was halted; ValueError if the loss has no graph.
        """
        if self.failed or self.halted:
            code = "backward_forward_failed" if self.failed else "recording_backward_halted"
            raise RecordingFailedError(f"The forward did not end ({self.outcome.reason}).", code=code)
        if not loss.requires_grad:
            raise ValueError(
                "The loss does not require grad, so there is nothing to go back through. Record outside "
                "torch.no_grad(), with an input or parameters that require gradients."
            )
        loss.backward(retain_graph=retain_graph, create_graph=create_graph)  # type: ignore[no-untyped-call]
        return self

    def select(self, what: str | Selector) -> "Recording":
        """A narrower recording: every record that a key names, or that a selector takes.

        Args:
            what: A key as for `recording[...]`, a selector, or its text.
        Raises: RecordLookupError if a plain key names nothing; SelectorError if a text does not parse, or the
            selector needs the running forward.
        """
        if isinstance(what, str) and not any(mark in what for mark in "(*?"):
            rows = find_rows(self._table, self._canonical(what))
            if not rows:
                raise no_record(self._table, what)
            return self._part(rows)
        selector = as_selector(what)
        return self._part([row for row, record in enumerate(self) if selector(event_of(record))])

    @property
    def steps(self) -> list[int]:
        """The steps that have records, rising, each once."""
        return sorted({step for step in self._table.column("step") if step is not None})

    def at(self, step: int, stage: str | None = "train", microbatch: int | None = None) -> "Recording":
        """The records of one step.

        Args:
            step: Training step.
            stage: One of train, validate, test, predict; None for all.
            microbatch: Which forward of an accumulated step; None for all.
        Raises: RecordLookupError if that step was not captured.
        """
        stages, microbatches = self._table.column("stage"), self._table.column("microbatch")
        rows = [
            row
            for row in self._table.find("step", step)
            if (stage is None or stages[row] == stage)
            and (microbatch is None or microbatches[row] == microbatch)
        ]
        if not rows:
            raise self._no_such_step(step, stage, microbatch)
        return self._part(rows)

    def __len__(self) -> int:
        return len(self._table)

    def __iter__(self) -> Iterator[Record]:
        return (self._table.row(index) for index in range(len(self._table)))

    def __contains__(self, key: object) -> bool:
        if isinstance(key, str):
            return bool(find_rows(self._table, self._canonical(key)))
        return any(record is key for record in self)

    @overload
    def __getitem__(self, key: int | str) -> Record: ...
    @overload
    def __getitem__(self, key: slice) -> "Recording": ...
    def __getitem__(self, key: int | str | slice) -> "Record | Recording":
        if isinstance(key, slice):
            return self._part(range(len(self))[key])
        if isinstance(key, str):
            return self._table.row(self._only(key, find_rows(self._table, self._canonical(key))))
        try:
            return self._table.row(range(len(self))[key])
        except IndexError:
            raise IndexError(f"No record {key}: the recording has {len(self)} records.") from None

    def __repr__(self) -> str:
        return f"<Recording of {in_words(self._table, self.status, self.outcome.reason, self.missing_ranks)}>"

    def _canonical(self, key: str) -> str:
        """The key with the name that records carry, where it begins with another name of a module."""
        address, colon, call = key.partition(":")
        return f"{self._aliases[address]}{colon}{call}" if address in self._aliases else key

    def _part(self, rows: Sequence[int]) -> "Recording":
        part = copy.copy(self)
        part._table = PartOfTable(self._table, rows)
        return part

    def _only(self, key: str, rows: list[int]) -> int:
        if not rows:
            raise no_record(self._table, key)
        if len(rows) > 1:
            raise AmbiguousRecordError(
                f"{len(rows)} records answer to {key!r} (rows {', '.join(map(str, rows[:5]))}"
                f"{', ...' if len(rows) > 5 else ''}). Narrow it with `.at(step)`, with `:k` for one pass, "
                f"or take all of them with `.select({key!r})`."
            )
        return rows[0]

    def _no_such_step(self, step: int, stage: str | None, microbatch: int | None) -> RecordLookupError:
        steps = self.steps
        near = sorted(sorted(steps, key=lambda other: abs(other - step))[:4])
        where = "" if stage is None else f" in stage {stage!r}"
        where += "" if microbatch is None else f", microbatch {microbatch}"
        there = f"Captured steps nearby: {', '.join(map(str, near))}." if near else "It has no steps."
        return RecordLookupError(f"Step {step}{where} was not captured. {there} `recording.steps` lists all.")
