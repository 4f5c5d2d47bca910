"""Records in memory as a table: all of them, or some rows of another table."""

from collections.abc import Iterable, Sequence
from functools import cached_property
from typing import Any

from tl_integrations.capture.events import Record
from tl_integrations.capture.protocols import RecordTable


class MemoryTable:
    """Records in a list, which is made of what was given when it is first read."""

    def __init__(self, records: Iterable[Record] = ()) -> None:
        self._given = records

    @cached_property
    def _records(self) -> list[Record]:
        return list(self._given)

    def __len__(self) -> int:
        return len(self._records)

    def row(self, index: int) -> Record:
        return self._records[index]

    def column(self, name: str) -> Sequence[Any]:
        return [getattr(record, name) for record in self._records]

    def find(self, name: str, value: Any) -> Sequence[int]:
        return [row for row, held in enumerate(self.column(name)) if held == value]


class PartOfTable:
    """Some rows of another table."""

    def __init__(self, table: RecordTable, rows: Sequence[int]) -> None:
        self._table = table
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, index: int) -> Record:
        return self._table.row(self._rows[index])

    def column(self, name: str) -> Sequence[Any]:
        whole = self._table.column(name)
        return [whole[row] for row in self._rows]

    def find(self, name: str, value: Any) -> Sequence[int]:
        found = set(self._table.find(name, value))
        return [row for row, inner in enumerate(self._rows) if inner in found]
