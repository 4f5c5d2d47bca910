"""Which records a text key names: a label, an address, either with `:k` and an output path."""

import re
from collections.abc import Sequence

from tl_integrations.capture.protocols import RecordTable
from tl_integrations.errors import RecordLookupError, near_names

_KEY = re.compile(r"(?P<base>[^:\[\]]*)(?::(?P<call>[1-9][0-9]*))?(?P<path>(?:\[.*\])?)", re.DOTALL)
_LABELS = ("label", "raw_label", "short_label")


def find_rows(table: RecordTable, key: str) -> list[int]:
    """Rows that `key` names, in capture order; empty when nothing answers to it."""
    parsed = _KEY.fullmatch(key)
    if parsed is None:
        return []
    base, path = parsed["base"], parsed["path"]
    call = int(parsed["call"]) if parsed["call"] else None
    rows = _by_label(table, base, call) or _by_address(table, base, call) or _by_last_part(table, base, call)
    if path:
        paths = table.column("path")
        rows = [row for row in rows if paths[row] == path]
    return rows


def no_record(table: RecordTable, key: str) -> RecordLookupError:
    """The error for a key that nothing answers to."""
    names = list(dict.fromkeys(name for name in (*table.column("label"), *table.column("address")) if name))
    more = ", ..." if len(names) > 8 else ""
    there = f"It holds: {', '.join(names[:8])}{more}." if names else "It has no named records."
    return RecordLookupError(f"No record is named {key!r}. {near_names(key.split(':')[0], names)}{there}")


def _by_label(table: RecordTable, base: str, call: int | None) -> list[int]:
    found = (table.find(column, base) for column in _LABELS)
    rows = next((rows for rows in found if len(rows)), ())
    return _with_call(rows, table.column("pass_index"), call)


def _by_address(table: RecordTable, base: str, call: int | None) -> list[int]:
    rows = table.find("address", base)
    if not len(rows):
        return []
    kinds = table.column("kind")
    outputs = [row for row in rows if kinds[row] == "module"]
    if outputs:
        return _with_call(outputs, table.column("pass_index"), call)
    if call is None:
        return list(rows)
    modules = table.column("modules")
    return [row for row in rows if modules[row] and modules[row][-1] == f"{base}:{call}"]


def _by_last_part(table: RecordTable, base: str, call: int | None) -> list[int]:
    full = {address for address in set(table.column("address")) if address.rsplit(".", 1)[-1] == base}
    return _by_address(table, full.pop(), call) if len(full) == 1 and base else []


def _with_call(rows: Sequence[int], passes: Sequence[int], call: int | None) -> list[int]:
    return [row for row in rows if call is None or passes[row] == call]
