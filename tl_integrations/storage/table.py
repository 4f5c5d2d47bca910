"""The records of one or several bundles as a table: rows made when asked for, columns without rows."""

from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from tl_integrations.capture.events import Gradient, Histogram, Moment, Record
from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.columns import Segment
from tl_integrations.storage.filesystem import DISK, Disk
from tl_integrations.storage.payloads import StoredPayload
from tl_integrations.storage.record_lines import (
    MOMENT,
    SITE,
    read_histogram,
    read_moment,
    read_site,
    read_tensor_fields,
)
from tl_integrations.storage.repeating import CodedColumn, StepColumn
from tl_integrations.storage.strict_json import parse
from tl_integrations.storage.tlspec import NO_STEP, Plain

_DEFAULT_MOMENT = Moment()
_DEFAULT_RECORD = Record()


class Part:
    """A segment of one bundle, with its tables read once: what each code stands for."""

    def __init__(self, segment: Segment, bundle: Path, disk: Disk = DISK) -> None:
        self.segment: Segment = segment
        self.bundle: Path = bundle
        self.disk: Disk = disk

    @cached_property
    def moments(self) -> list[Plain]:
        return [read_moment(plain, self.segment.where) for plain in self.segment.moments]

    def site(self, code: int) -> Plain:
        """A site's fields.

        Raises:
            BundleCorruptError: for this site alone; other records can still be read.
        """
        known = self._sites.get(code)
        if known is None:
            known = self._sites[code] = read_site(self.segment.sites[code], self.segment.where)
        return known

    @cached_property
    def _sites(self) -> dict[int, Plain]:
        return {}

    @cached_property
    def gradients(self) -> dict[int, int]:
        """Row of the gradient of each record that has one, by the record's row."""
        owners = self.segment.columns["grad_record"] - self.segment.first
        return {int(owner): row for row, owner in enumerate(owners)}

    def record(self, row: int) -> Record:
        columns, site = self.segment.columns, self.site(int(self.segment.columns["site"][row]))
        about = {key: value for key, value in site.items() if not key.startswith("stored_")}
        moment = self.moments[int(columns["moment"][row])]
        step = int(columns["step"][row])
        return Record(
            moment=Moment(step=None if step == NO_STEP else step, **moment),
            run_index=int(columns["run"][row]),
            statistics=self._statistics(row),
            histogram=self._histogram(row),
            payload=self._payload(row, site),
            gradient=self._gradient(row, str(about.get("label") or about.get("address", ""))),
            **about,
        )

    def _payload(self, row: int, site: Plain) -> StoredPayload | None:
        columns = self.segment.columns
        nbytes = int(columns["nbytes"][row])
        if nbytes < 0:
            return None
        return StoredPayload(
            bundle=self.bundle,
            shard=self.segment.shard,
            offset=self._offset(columns["offset"][row]),
            nbytes=nbytes,
            digest=columns["sum"][row].tobytes(),
            shape=site["stored_shape"],
            dtype=site["stored_dtype"],
            name=str(site.get("label") or site.get("address", "")),
            disk=self.disk,
        )

    def _gradient(self, row: int, name: str) -> Gradient | None:
        at = self.gradients.get(row)
        if at is None:
            return None
        columns = self.segment.columns
        plain = self.segment.sites[int(columns["grad_site"][at])]
        shape, dtype = read_tensor_fields(plain, self.segment.where)
        payload = StoredPayload(
            bundle=self.bundle,
            shard=self.segment.shard,
            offset=self._offset(columns["grad_offset"][at]),
            nbytes=int(columns["grad_nbytes"][at]),
            digest=columns["grad_sum"][at].tobytes(),
            shape=shape,
            dtype=dtype,
            name=f"gradient of {name}",
            disk=self.disk,
        )
        scale, accumulate = float(columns["grad_loss_scale"][at]), int(columns["grad_accumulate"][at])
        return Gradient(payload=payload, loss_scale=scale, accumulate=accumulate)

    def _offset(self, value: np.integer[Any]) -> int:
        offset = int(value)
        if not 0 <= offset < 1 << 62:
            raise BundleCorruptError(f"{self.segment.where} places a tensor at byte {offset}.")
        return offset

    def _statistics(self, row: int) -> dict[str, float] | None:
        code = int(self.segment.columns["statistics_names"][row])
        if code < 0:
            return None
        names = self.segment.names[code]
        values = self.segment.columns["statistics"][row]
        if (
            not isinstance(names, list)
            or len(names) > len(values)
            or not all(isinstance(n, str) for n in names)
        ):
            raise BundleCorruptError(
                f"{self.segment.where} names {len(values)} statistics {str(names)[:80]}."
            )
        return {name: float(value) for name, value in zip(names, values)}

    def _histogram(self, row: int) -> Histogram | None:
        content = self.segment.histogram_text(row)
        where = self.segment.where
        return read_histogram(parse(content, where), where) if content else None


class BundleTable:
    """Rows of several parts, one after the other, without what was superseded or never committed.

    Args:
        kept: For each part the rows that count, rising.
    """

    def __init__(self, parts: Sequence[Part], kept: Sequence[np.ndarray]) -> None:
        self._parts, self._kept = list(parts), list(kept)
        self._starts = np.cumsum([0, *map(len, kept)]).tolist()
        self._columns: dict[str, Sequence[Any]] = {}

    def __len__(self) -> int:
        return int(self._starts[-1])

    def row(self, index: int) -> Record:
        if not 0 <= index < len(self):
            raise IndexError(f"No row {index}: the table has {len(self)} rows.")
        at = bisect_right(self._starts, index) - 1
        return self._parts[at].record(int(self._kept[at][index - self._starts[at]]))

    def column(self, name: str) -> Sequence[Any]:
        """One field of all records: a field of `Record` or of its moment, besides tensors."""
        if name not in self._columns:
            self._columns[name] = self._column(name)
        return self._columns[name]

    def _column(self, name: str) -> Sequence[Any]:
        if name == "step":
            return cast(Sequence[Any], self._steps)
        if name == "run_index":
            return cast(Sequence[Any], self._joined("run"))
        if name in MOMENT:
            return self._coded(
                "moment", lambda part, code: part.moments[code].get(name, getattr(_DEFAULT_MOMENT, name))
            )
        if name in SITE or name in ("shape", "dtype"):
            return self._coded(
                "site", lambda part, code: part.site(code).get(name, getattr(_DEFAULT_RECORD, name))
            )
        if name == "nbytes":
            return cast(Sequence[Any], self._joined("nbytes"))
        return [getattr(self.row(index), name) for index in range(len(self))]

    def find(self, name: str, value: Any) -> Sequence[int]:
        """Rows where a column has a value, rising, without looking at rows one by one."""
        column = self.column(name)
        if isinstance(column, StepColumn | CodedColumn):
            return cast(Sequence[int], column.rows_of(value))
        return cast(Sequence[int], np.flatnonzero(np.asarray(column) == value))

    @cached_property
    def _steps(self) -> StepColumn:
        return StepColumn(self._joined("step"))

    def _joined(self, name: str) -> np.ndarray:
        pieces = [part.segment.columns[name][kept] for part, kept in zip(self._parts, self._kept)]
        return np.concatenate(pieces) if pieces else np.zeros(0, np.int64)

    def _coded(self, codes: str, value_of: Callable[[Part, int], Any]) -> CodedColumn:
        """Codes of all parts, renumbered so that one list of values serves them all."""
        values: dict[Any, int] = {}
        pieces = []
        for part, kept in zip(self._parts, self._kept):
            own = part.segment.columns[codes][kept]
            used = np.unique(own)
            renumbered = np.zeros(int(used[-1]) + 1 if len(used) else 0, np.int32)
            for code in used.tolist():
                renumbered[code] = values.setdefault(value_of(part, code), len(values))
            pieces.append(renumbered[own])
        return CodedColumn(np.concatenate(pieces) if pieces else np.zeros(0, np.int32), list(values))


def kept_rows(parts: Sequence[Part]) -> list[np.ndarray]:
    """For each part of one bundle, in order, the rows that were committed and not superseded."""
    committed = _together([part.segment.columns["commits"] for part in parts])
    rewinds = [
        (at, line["step"])
        for part in parts
        for at, line in part.segment.lines
        if line.get("kind") == "rewind" and type(line.get("step")) is int
    ]
    return [_kept(part.segment, committed, rewinds) for part in parts]


def _together(pieces: list[np.ndarray]) -> np.ndarray:
    whole = np.concatenate([np.zeros(0, np.int64), *pieces])
    # Numbers rise as they are written; sorting a million again would double the memory that opening takes.
    return whole if bool((whole[1:] > whole[:-1]).all()) else np.unique(whole)


def _kept(segment: Segment, committed: np.ndarray, rewinds: list[tuple[int, int]]) -> np.ndarray:
    # `committed` is sorted once for all segments; `isin` would sort it for each, 0.1 s for a million.
    commits = segment.columns["commit"]
    places = np.minimum(np.searchsorted(committed, commits), max(len(committed) - 1, 0))
    keep = committed[places] == commits if len(committed) else np.zeros(len(commits), bool)
    numbers = np.arange(segment.first, segment.first + segment.size)
    for at, step in rewinds:
        if segment.first < at:
            keep &= ~((numbers < at) & (segment.columns["step"] >= step))
    return np.flatnonzero(keep).astype(np.int32)
