"""What is known of a forward that failed."""

import traceback
from dataclasses import dataclass

from tl_integrations.capture.oplog import OpLine
from tl_integrations.capture.passes import Pass


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Fields of a failed partial recording."""

    error_repr: str = ""
    error_traceback: str = ""
    num_committed_ops: int | None = None
    """Ops that ended before the failing one; None where the plan did not see every op."""
    last_successful_op_label: str | None = None
    """Label in flight of the last op that ended."""
    last_event_label: str | None = None
    last_event_func: str | None = None
    """The function that raised; None when the exception came from Python code between ops."""
    last_event_source_line: str | None = None
    """File and line of the last op that ended, in the user's code."""
    last_event_input_meta: str | None = None
    """Shapes of the failing call's arguments."""


def failure_of(error: BaseException, ended: Pass) -> Failure:
    """Describe a forward that raised."""
    text = "".join(traceback.format_exception(error))
    graph = ended.graph
    if graph is None:
        return Failure(error_repr=repr(error), error_traceback=text)
    ops = [(number, line) for number, line in enumerate(graph.lines) if line.kind == "op"]
    calls = sum(1 for number, line in ops if line.first in (-1, number))
    label, where = _last(ended, ops)
    failing = ended.failing
    return Failure(
        error_repr=repr(error),
        error_traceback=text,
        num_committed_ops=calls,
        last_successful_op_label=label,
        last_event_label=label,
        last_event_func=failing[0] if failing else None,
        last_event_source_line=where,
        last_event_input_meta=failing[1] if failing else None,
    )


def _last(ended: Pass, ops: list[tuple[int, OpLine]]) -> tuple[str | None, str | None]:
    if not ops:
        return None, None
    number, line = ops[-1]
    return ended.raw_labels[number], f"{line.file}:{line.line}" if line.file else None
