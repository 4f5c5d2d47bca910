"""A recording in one line of words."""

from collections.abc import Sequence

from tl_integrations.capture.protocols import RecordTable

MOST_NAMES = 6


def in_words(table: RecordTable, status: str, reason: str | None, missing_ranks: Sequence[int]) -> str:
    """How many records, of which steps, of what, and how the recording ended.

    Bounded: no tensor and only a few rows are read, whatever the table holds.
    """
    rows = len(table)
    seen = [table.row(row) for row in range(min(MOST_NAMES, rows))]
    names = ", ".join(dict.fromkeys(record.name or "(root)" for record in seen))
    steps = _span(seen[0].step, table.row(rows - 1).step) if seen else ""
    return "".join(
        (
            f"{rows} record{'' if rows == 1 else 's'}{steps}",
            f": {names}" if names else "",
            ", ..." if rows > MOST_NAMES else "",
            "" if status == "complete" else f", {status}: {reason or 'no reason'}",
            f", without ranks {', '.join(map(str, missing_ranks))}" if missing_ranks else "",
        )
    )


def _span(first: int | None, last: int | None) -> str:
    """The steps in words; nothing outside a loop."""
    if first is None or last is None:
        return ""
    return f" of step {first}" if first == last else f" of steps {first} to {last}"
