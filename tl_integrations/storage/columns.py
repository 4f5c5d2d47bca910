"""The lines of an index as columns: filled row by row, written as a table, read without rows. Pure."""

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from typing import Any

import numpy as np

from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.shards import decode_table, encode_table
from tl_integrations.storage.strict_json import dump, parse
from tl_integrations.storage.tlspec import VERSION, Plain

_INTEGERS = ("step", "commit", "run", "offset", "nbytes")
_GRADIENTS = {"grad_record": "q", "grad_offset": "q", "grad_nbytes": "q", "grad_accumulate": "q"}
_GRADIENTS |= {"grad_loss_scale": "d"}
_COMMITS = {"commits": "q", "commit_steps": "q", "commit_graphs": "i"}
_KINDS = {"q": "<i8", "i": "<i4", "d": "<f8"}
_VERSIONS = tuple(map(str, range(1, VERSION + 1)))
_DIGEST = 16


@dataclass(slots=True)
class Texts:
    """JSON texts, each kept once and known by its number."""

    codes: dict[str, int] = field(default_factory=dict)

    def code(self, text: str) -> int:
        return self.codes.setdefault(text, len(self.codes))

    def table(self, opening: str = "{", closing: str = "}") -> np.ndarray:
        """Of the texts so far, in the order of their numbers."""
        return text_array("[" + ",".join(f"{opening}{text}{closing}" for text in self.codes) + "]")


def text_array(text: str) -> np.ndarray:
    return np.frombuffer(text.encode(), np.uint8)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Several records, column by column."""

    step: Sequence[int]
    commit: Sequence[int]
    run: Sequence[int]
    offset: Sequence[int]
    """-1 without a tensor."""
    nbytes: Sequence[int]
    """Likewise."""
    moment: Sequence[str]
    site: Sequence[str]
    statistics_names: Sequence[str | None]
    """JSON lists."""
    digests: Sequence[bytes]
    """16 bytes each; zeros without a tensor."""
    statistics: Sequence[tuple[float, ...]]
    histograms: Sequence[str]


class Columns:
    """Columns that grow while a shard does; what a failed commit added is taken back."""

    def __init__(self, first: int) -> None:
        self.first = first
        # Lists of what others hold anyway: adding a step's rows costs no more than copying so many pointers.
        self._records: dict[str, list[Any]] = {field.name: [] for field in fields(Rows)}
        self._gradients: dict[str, array[Any]] = {n: array(kind) for n, kind in _GRADIENTS.items()}
        self._commits = {name: array(kind) for name, kind in _COMMITS.items()}
        self._gradient_sites: list[str] = []
        self._gradient_sums = bytearray()
        self._lines: list[str] = []
        self._graphs = Texts()

    def __len__(self) -> int:
        return len(self._records["step"])

    @property
    def empty(self) -> bool:
        return not (len(self) or self._commits["commits"] or self._lines or self._gradients["grad_record"])

    def add(
        self,
        integers: tuple[int, int, int, int, int],
        moment: str,
        site: str,
        digest: bytes,
        names: str | None = None,
        statistics: tuple[float, ...] = (),
        histogram: str = "",
    ) -> None:
        """One record.

        Args:
            integers: Step, commit, run, offset and bytes; -1 for the last two without a tensor.
            digest: 16 bytes; zeros without a tensor.
            names: JSON list of its statistics' names.
        """
        values = (*integers, moment, site, names, digest, statistics, histogram)
        for column, value in zip(self._records.values(), values, strict=True):
            column.append(value)

    def extend(self, rows: Rows) -> None:
        """Several records."""
        for name, column in self._records.items():
            column += getattr(rows, name)

    def add_gradient(
        self,
        *,
        record: int,
        site: str,
        offset: int,
        nbytes: int,
        digest: bytes,
        loss_scale: float,
        accumulate: int,
    ) -> None:
        values = {"record": record, "offset": offset, "nbytes": nbytes, "accumulate": accumulate}
        for name, value in values.items():
            self._gradients[f"grad_{name}"].append(value)
        self._gradients["grad_loss_scale"].append(loss_scale)
        self._gradient_sites.append(site)
        self._gradient_sums += digest

    def add_line(self, text: str) -> None:
        """A graph or rewind line, as the JSON text of its object."""
        self._lines.append(f'{{"at":{self.first + len(self)},"line":{text}}}')

    def add_commit(self, number: int, step: int, graph: str | None = None) -> None:
        """The end of a captured step; `graph` is the id of its forward's graph, when that was kept."""
        self._commits["commits"].append(number)
        self._commits["commit_steps"].append(step)
        self._commits["commit_graphs"].append(-1 if graph is None else self._graphs.code(dump(graph)))

    def mark(self) -> tuple[int, int, int, int]:
        """A place to come back to with `restore`."""
        gradients = len(self._gradients["grad_record"])
        return len(self), gradients, len(self._commits["commits"]), len(self._lines)

    def restore(self, mark: tuple[int, int, int, int]) -> None:
        records, gradients, commits, lines = mark
        for rows in self._records.values():
            del rows[records:]
        for column in self._gradients.values():
            del column[gradients:]
        for column in self._commits.values():
            del column[commits:]
        del self._gradient_sites[gradients:], self._gradient_sums[gradients * _DIGEST :]
        del self._lines[lines:]

    def arrays(self) -> dict[str, np.ndarray]:
        """Every column and table, as `Segment` and `encode` want them."""
        rows = self._records
        found: dict[str, np.ndarray] = {name: np.array(rows[name], "<i8") for name in _INTEGERS}
        grown: dict[str, array[Any]] = {**self._gradients, **self._commits}
        found |= {name: np.array(column, _KINDS[column.typecode]) for name, column in grown.items()}
        found["sum"] = _sums(b"".join(rows["digests"]))
        found["grad_sum"] = _sums(bytes(self._gradient_sums))
        found["statistics"] = _rectangle(rows["statistics"])
        found |= self._texts()
        found |= {"lines": text_array("[" + ",".join(self._lines) + "]")}
        histograms = rows["histograms"]
        if any(histograms):
            found["histogram_end"] = np.cumsum([len(text) for text in histograms], dtype=np.int64)
            found["histograms"] = text_array("".join(histograms))
        return found

    def _texts(self) -> dict[str, np.ndarray]:
        """Tables of texts in the order in which they came, and the columns that point into them."""
        moments, sites, names, rows = Texts(), Texts(), Texts(), self._records
        coded: dict[str, list[int]] = {"moment": [moments.code(text) for text in rows["moment"]]}
        coded["statistics_names"] = [
            -1 if text is None else names.code(text) for text in rows["statistics_names"]
        ]
        coded |= {"site": [], "grad_site": []}
        for owner, text in zip(self._gradients["grad_record"], self._gradient_sites):
            done, upto = len(coded["site"]), max(owner + 1 - self.first, 0)
            coded["site"] += map(sites.code, rows["site"][done:upto])
            coded["grad_site"].append(sites.code(text))
        coded["site"] += map(sites.code, rows["site"][len(coded["site"]) :])
        found = {name: np.array(codes, "<i4") for name, codes in coded.items()}
        found |= {"moments": moments.table(), "sites": sites.table()}
        return found | {"names": names.table("", ""), "graphs": self._graphs.table("", "")}

    def encode(self, metadata: Mapping[str, Any]) -> bytes:
        """The bytes of an index file."""
        return encode_columns(self.arrays(), self.first, metadata)


def encode_columns(arrays: Mapping[str, np.ndarray], first: int, metadata: Mapping[str, Any]) -> bytes:
    """The bytes of an index file that holds these columns."""
    about = {"format": "tlspec-index", "version": VERSION, "first": first, **metadata}
    return encode_table(arrays, {key: str(value) for key, value in about.items()})


def _sums(digests: bytes) -> np.ndarray:
    return np.frombuffer(digests, np.uint8).reshape(-1, _DIGEST)


def _rectangle(rows: list[tuple[float, ...]]) -> np.ndarray:
    width = max(map(len, rows), default=0)
    if all(len(row) == width for row in rows):
        return np.array(rows, np.float64).reshape(len(rows), width)
    table = np.full((len(rows), width), np.nan)
    for position, row in enumerate(rows):
        table[position, : len(row)] = row
    return table


class Segment:
    """Columns of some consecutive records, checked to fit together.

    Args:
        columns: As `Columns.arrays` makes them.
        first: Number of the first record.
        shard: Number of the shard that holds their tensors.
    Raises:
        BundleCorruptError: if columns are missing, differ in length, or point outside of their tables.
    """

    def __init__(self, columns: Mapping[str, np.ndarray], *, first: int, shard: int, where: str) -> None:
        self.columns: Mapping[str, np.ndarray] = columns
        self.first: int = first
        self.shard: int = shard
        self.where: str = where
        self.size: int = len(self._column("step", "i8"))
        self._check()

    @classmethod
    def decode(cls, content: bytes, where: str) -> tuple["Segment", dict[str, str]]:
        """An index file's columns and its metadata."""
        columns, about = decode_table(content, where)
        return cls.of_table(columns, about, where), about

    @classmethod
    def of_table(cls, columns: Mapping[str, np.ndarray], about: Mapping[str, str], where: str) -> "Segment":
        """A segment of what an index file holds: its columns and its metadata."""
        if about.get("format") != "tlspec-index" or about.get("version") not in _VERSIONS:
            raise BundleCorruptError(f"{where} is not an index of this format's version.")
        return cls(
            columns, first=_number(about, "first", where), shard=_number(about, "shard", where), where=where
        )

    def _check(self) -> None:
        for name in _INTEGERS:
            self._column(name, "i8", self.size)
        commits, gradients = len(self._column("commits", "i8")), len(self._column("grad_record", "i8"))
        for kinds, rows in ((_COMMITS, commits), (_GRADIENTS, gradients)):
            for name, kind in kinds.items():
                self._column(name, _KINDS[kind][1:], rows)
        for name, rows in (("sum", self.size), ("grad_sum", gradients)):
            self._column(name, "u1", rows, (_DIGEST,))
        self._column("statistics", "f8", self.size, None)
        tables = {"moment": self.moments, "site": self.sites, "statistics_names": self.names}
        for name, table in tables.items():
            self._check_codes(name, self.size, len(table), -1 if name == "statistics_names" else 0)
        self._check_codes("grad_site", gradients, len(self.sites), 0)
        self._check_codes("commit_graphs", commits, len(self.graphs), -1)

    def _column(
        self, name: str, kind: str, size: int | None = None, rest: tuple[int, ...] | None = ()
    ) -> np.ndarray:
        column = self.columns.get(name)
        if column is None or column.dtype.str[1:] != kind or column.ndim == 0:
            raise BundleCorruptError(f"{self.where} lacks its column {name!r}, or it is of another type.")
        if (size is not None and len(column) != size) or (rest is not None and column.shape[1:] != rest):
            raise BundleCorruptError(f"Column {name!r} of {self.where} has the shape {column.shape}.")
        return column

    def _check_codes(self, name: str, size: int, most: int, least: int) -> None:
        codes = self._column(name, "i4", size)
        if size and (codes.min() < least or codes.max() >= most):
            raise BundleCorruptError(
                f"Column {name!r} of {self.where} points outside of its table of {most}."
            )

    def _table(self, name: str) -> list[Any]:
        column = self._column(name, "u1")
        rows = parse(column.tobytes(), f"Table {name!r} of {self.where}")
        if not isinstance(rows, list):
            raise BundleCorruptError(f"Table {name!r} of {self.where} is no list.")
        return rows

    @cached_property
    def moments(self) -> list[Any]:
        return self._table("moments")

    @cached_property
    def sites(self) -> list[Any]:
        return self._table("sites")

    @cached_property
    def names(self) -> list[Any]:
        return self._table("names")

    @cached_property
    def graphs(self) -> list[Any]:
        return self._table("graphs")

    @cached_property
    def lines(self) -> list[tuple[int, Plain]]:
        """Graph and rewind lines, each with the number of the record that follows it."""
        rows = self._table("lines")
        if not all(
            isinstance(r, dict) and type(r.get("at")) is int and isinstance(r.get("line"), dict) for r in rows
        ):
            raise BundleCorruptError(f"Table 'lines' of {self.where} holds something else than lines.")
        return [(row["at"], row["line"]) for row in rows]

    def histogram_text(self, row: int) -> bytes:
        """JSON of one record's histogram; empty when it has none."""
        if "histogram_end" not in self.columns:
            return b""
        ends, texts = self._column("histogram_end", "i8", self.size), self._column("histograms", "u1")
        start, end = (int(ends[row - 1]) if row else 0), int(ends[row])
        if not 0 <= start <= end <= len(texts):
            raise BundleCorruptError(f"Column 'histogram_end' of {self.where} points outside of its texts.")
        return texts[start:end].tobytes()


def _number(about: Mapping[str, str], key: str, where: str) -> int:
    text = about.get(key, "")
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BundleCorruptError(f"{where} has {key} {text[:40]!r} in its metadata.")
    return int(text)
