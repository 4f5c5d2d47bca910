"""What every table of records promises to `Recording`: `RecordTable` of `capture/protocols.py`.

A new table is one more line in `TABLES` and passes unchanged.
"""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import tl_integrations as tl
from tests.bundles import step
from tl_integrations.capture.events import Record
from tl_integrations.capture.protocols import CapturedStep, RecordTable
from tl_integrations.capture.record_tables import MemoryTable, PartOfTable
from tl_integrations.storage import TlspecSink

WRITTEN = [
    *(
        step(k, {"linear_1_1": torch.full((2, 3), float(k)), "relu_1_2": torch.zeros(k + 1)})
        for k in range(4)
    ),
    step(2, {"linear_1_1": torch.ones(2)}, stage="validate", batch=1, dataloader_idx=1),
    step(None, {"conv_1_1": torch.ones(1, 2, 3)}),
]


def records(written: list[CapturedStep] = WRITTEN) -> list[Record]:
    return [record for each in written for record in each.records]


def bundled(folder: Path, shard_bytes: int) -> RecordTable:
    sink = tl.to_disk(folder / "run.tlspec", shard_bytes=shard_bytes).open()
    assert isinstance(sink, TlspecSink)
    for each in WRITTEN:
        sink.write(each)
    sink.close()
    return tl.load(folder / "run.tlspec")._table


TABLES: dict[str, Callable[[Path], RecordTable]] = {
    "memory": lambda folder: MemoryTable(records()),
    "part": lambda folder: PartOfTable(MemoryTable([records()[0], *records()]), range(1, len(records()) + 1)),
    "bundle": lambda folder: bundled(folder, 1 << 20),
    "bundle of many shards": lambda folder: bundled(folder, 64),
    "part of a bundle": lambda folder: PartOfTable(bundled(folder, 64), range(len(records()))),
}
COLUMNS = (
    "label",
    "address",
    "step",
    "stage",
    "run_index",
    "pass_index",
    "kind",
    "io",
    "shape",
    "dtype",
    "layer",
)


@pytest.fixture(params=TABLES, ids=list(TABLES))
def table(request: pytest.FixtureRequest, tmp_path: Path) -> RecordTable:
    return TABLES[request.param](tmp_path)


def test_rows_are_the_records_in_the_order_of_capture(table: RecordTable) -> None:
    assert len(table) == len(records())
    for place, record in enumerate(records()):
        row = table.row(place)
        assert (row.label, row.moment, row.shape) == (record.label, record.moment, record.shape)
        assert torch.equal(row.out, record.out)


@pytest.mark.parametrize("name", COLUMNS)
def test_a_column_is_one_field_of_every_row(table: RecordTable, name: str) -> None:
    column = table.column(name)
    assert len(column) == len(table)
    assert list(column) == [getattr(table.row(place), name) for place in range(len(table))]


@pytest.mark.parametrize("name", COLUMNS)
def test_found_rows_are_those_with_the_value_and_rise(table: RecordTable, name: str) -> None:
    values = list(table.column(name))
    for value in dict.fromkeys(values):
        expected = [place for place, held in enumerate(values) if held == value]
        assert [int(place) for place in table.find(name, value)] == expected


def test_a_value_that_no_row_has_is_found_nowhere(table: RecordTable) -> None:
    assert list(table.find("label", "absent_1_1")) == [] and list(table.find("step", 99)) == []
