"""Which records a text key names: a label, an address, either with `:k` and an output path."""

import re
from typing import Any

from tl_integrations.capture.protocols import RecordTable
from tl_integrations.errors import RecordLookupError, near_names

_KEY = re.compile(r"(?P<base>[^:\[\]]*)(?::(?P<call>[1-9][0-9]*))?(?P<path>(?:\[.*\]|\..*)?)", re.DOTALL)


class KeyIndex:
    """The names of a table's records, read once from its columns."""

    def __init__(self, table: RecordTable) -> None:
        def column(name: str) -> list[Any]:
            return list(table.column(name))

        self.labels = column("label")
        self.raw_labels = column("raw_label")
        self.addresses = column("address")
        self.modules = column("modules")
        self.passes = column("pass_index")
        self.paths = column("path")
        self.kinds = column("kind")

    def find(self, key: str) -> list[int]:
        """Rows that `key` names, in capture order; empty when nothing answers to it."""
        parsed = _KEY.fullmatch(key)
        if parsed is None:
            return []
        base, path = parsed["base"], parsed["path"]
        call = int(parsed["call"]) if parsed["call"] else None
        rows = self._by_label(base, call) or self._by_address(base, call) or self._by_last_part(base, call)
        return [row for row in rows if self.paths[row] == path] if path else rows

    def names(self) -> list[str]:
        """Every label and address, without repeats."""
        return list(dict.fromkeys(name for name in (*self.labels, *self.addresses) if name))

    def missing(self, key: str) -> RecordLookupError:
        """The error for a key that nothing answers to."""
        names = self.names()
        near = near_names(key.split(":")[0], names)
        there = (
            f"It holds: {', '.join(names[:8])}{', ...' if len(names) > 8 else ''}."
            if names
            else "It is empty."
        )
        return RecordLookupError(f"No record is named {key!r}. {near}{there}")

    def _by_label(self, base: str, call: int | None) -> list[int]:
        exact = [row for row, label in enumerate(self.labels) if label == base]
        if not exact:
            raw = (base, *(f"{base}_{n}_raw" for n in self._raw_numbers(base)))
            exact = [row for row, label in enumerate(self.raw_labels) if label is not None and label in raw]
        return [row for row in exact if call is None or self.passes[row] == call]

    def _raw_numbers(self, short: str) -> list[str]:
        """Global numbers in raw labels that start with the short label `short`."""
        start = f"{short}_"
        found = (label for label in self.raw_labels if label is not None and label.startswith(start))
        return [number for label in found if (number := label[len(start) : -len("_raw")]).isdigit()]

    def _by_address(self, base: str, call: int | None) -> list[int]:
        rows = [row for row, address in enumerate(self.addresses) if address == base]
        rows = [row for row in rows if call is None or self._call_of(row) == call]
        outputs = [row for row in rows if self.kinds[row] == "module"]
        return outputs or rows

    def _by_last_part(self, base: str, call: int | None) -> list[int]:
        full = {address for address in self.addresses if address.rsplit(".", 1)[-1] == base}
        return self._by_address(full.pop(), call) if len(full) == 1 else []

    def _call_of(self, row: int) -> int:
        """Which call of its innermost module a record belongs to."""
        modules = self.modules[row]
        if self.kinds[row] != "op" or not modules:
            return int(self.passes[row])
        return int(str(modules[-1]).rsplit(":", 1)[1])
