"""Which lines of a logged forward have something kept of them."""

from collections.abc import Iterable, Sequence

from tl_integrations.capture.events import Record
from tl_integrations.capture.oplog import GraphLog, OpLine
from tl_integrations.capture.ops import Records


def by_line(log: GraphLog, records: Iterable[Record]) -> Records:
    """Records by the line of the log that they are of.

    A line takes the record of its own op; where only a module's output was kept, that one.
    """
    found: Records = {}
    for record in records:
        line = record.line
        if line is None or line >= len(log.lines) or record.io == "input":
            continue
        if line not in found or (found[line].kind == "module" and record.kind != "module"):
            found[line] = record
    for index, output in _outputs(log):
        if output.reads[0] in found:
            found.setdefault(index, found[output.reads[0]])
    return found


def _outputs(log: GraphLog) -> Sequence[tuple[int, OpLine]]:
    """Leaves of the model's output: each shares the payload of the op that made it."""
    return [(i, line) for i, line in enumerate(log.lines) if line.kind == "output" and line.reads]
