"""The open end of a bundle: one growing shard, its columns, and the lines that are not written yet."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

from tl_integrations.capture.events import Gradient, Record
from tl_integrations.capture.oplog import GraphLog
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.storage.columns import Columns
from tl_integrations.storage.fragments import Fragments, Site
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.record_lines import histogram_fragment, step_number
from tl_integrations.storage.shard_file import ShardFile
from tl_integrations.storage.strict_json import dump, number_text
from tl_integrations.storage.tensors import Pair, address_of, plain, reduce, refusal
from tl_integrations.storage.tlspec import MOST_RECORDS_PER_SHARD, line, sealed, sum_text

_NO_SUM = bytes(16)
_AT_ONCE = 16 << 20
"""Bytes that are placed before they are written: casts and other copies must not hold a whole step twice."""


class _Place(NamedTuple):
    """Where a tensor lies in the shard."""

    site: Site
    offset: int
    """-1 without a tensor."""
    entry: int
    """Its number among the shard's entries; -1 without a tensor."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place to come back to."""

    shard: int
    tensors: tuple[int, int, int, int]
    rows: tuple[int, int, int, int]
    lines: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What a shard took of a step."""

    records: int
    gradients: int
    nbytes: int
    """Of tensors and gradients."""


class Growing:
    """Takes records until its shard is full.

    Args:
        shard: Empty.
        first: Number of the first record.
        fragments: Texts known from earlier shards.
    """

    def __init__(self, shard: ShardFile, first: int, options: WriteOptions, fragments: Fragments) -> None:
        self.shard: ShardFile = shard
        self.columns: Columns = Columns(first)
        self.lines: list[str] = []
        """Written to the index at the next commit."""
        self._options, self._fragments = options, fragments
        self._reduces = options.dtype is not None or options.samples is not None

    @property
    def next_record(self) -> int:
        return self.columns.first + len(self.columns)

    def is_full(self, dimensions: int = 0) -> bool:
        """Whether another record, whose tensor has so many dimensions, belongs into the next shard."""
        return self._is_full(dimensions, 0)

    def _is_full(self, dimensions: int, placed: int) -> bool:
        records = len(self.columns) + placed
        full = self.shard.nbytes >= self._options.shard_bytes or records >= MOST_RECORDS_PER_SHARD
        return full or not self.shard.has_room(2 * dimensions)

    def mark(self) -> Mark:
        return Mark(
            shard=self.shard.number,
            tensors=self.shard.mark(),
            rows=self.columns.mark(),
            lines=len(self.lines),
        )

    def restore(self, mark: Mark) -> None:
        """Forget what came after the mark; everything, when the mark was set in an earlier shard."""
        here = mark.shard == self.shard.number
        self.columns.restore(mark.rows if here else (0, 0, 0, 0))
        del self.lines[mark.lines if here else 0 :]
        self.shard.restore(mark.tensors if here else None)

    def add_records(
        self, commit: int, records: Sequence[Record], tensors: Sequence[Pair], generation: int
    ) -> Added:
        """Append some records, one at least: until the shard is full, or the bytes are enough for one go.

        Args:
            tensors: Of each record its tensor and its gradient.
        """
        placed: list[tuple[Record, _Place, _Place | None]] = []
        nbytes = gradients = 0
        for record, (tensor, gradient) in zip(records, tensors, strict=True):
            number = self.next_record + len(placed)
            if placed and (self.shard.waiting >= _AT_ONCE or self._is_full(len(record.shape), len(placed))):
                break
            place, graded = self._place("r", number, record, tensor), None
            nbytes += max(place.site.nbytes, 0)
            if gradient is not None and record.gradient is not None:
                graded = self._place("g", number, record, gradient)
                nbytes, gradients = nbytes + graded.site.nbytes, gradients + 1
            placed.append((record, place, graded))
        self.shard.flush()
        self._add_lines(commit, placed, generation)
        return Added(records=len(placed), gradients=gradients, nbytes=nbytes)

    def _add_lines(
        self, commit: int, placed: Sequence[tuple[Record, _Place, _Place | None]], generation: int
    ) -> None:
        """Lines and columns of records whose bytes are written."""
        number = self.next_record
        rows: list[int] = []
        digests: list[bytes] = []
        statistics: list[tuple[float, ...]] = []
        histograms: list[str] = []
        for record, place, graded in placed:
            site, when = place.site, self._fragments.when(record.moment, generation)
            digest, tail = self._told(place)
            names, numbers, histogram, told = self._numbers(record)
            head = f'{{"kind":"record","record":{number},"commit":{commit},{when.line}'
            self.lines.append(sealed(f'{head},"run":{record.run_index},{site.line}{tail}{told}'))
            rows += when.step, commit, record.run_index, place.offset, site.nbytes
            rows += self.columns.codes(when.moment, site.line, names)
            digests.append(digest)
            statistics.append(numbers)
            histograms.append(histogram)
            if graded is not None and record.gradient is not None:
                self._add_gradient(commit, number, record.gradient, graded)
            number += 1
        self.columns.extend(rows, b"".join(digests), statistics, histograms)

    def _place(self, prefix: str, number: int, record: Record, tensor: Tensor | None) -> _Place:
        """Take a record's tensor (`r`) or its gradient (`g`)."""
        if tensor is None:
            return _Place(self._fragments.site(record, None), -1, -1)
        try:
            kept, address = self._kept(tensor)
        except (RuntimeError, TypeError) as error:
            raise refusal(record.name if prefix == "r" else f"gradient of {record.name}", error) from error
        site = self._fragments.site(record, kept) if prefix == "r" else self._fragments.gradient(kept)
        content = site.elements.from_address(address)
        if kept is not tensor:
            content.owner = kept  # type: ignore[attr-defined]
        return _Place(site, *self.shard.place(f"{prefix}{number:09d}", site.entry, content, site.nbytes))

    def _told(self, place: _Place) -> tuple[bytes, str]:
        """The checksum of what lies at a place, and what a line says of the place."""
        if place.entry < 0:
            return _NO_SUM, ""
        digest = self.shard.digests[place.entry]
        where = f',"shard":{self.shard.number},"offset":{place.offset},"nbytes":{place.site.nbytes}'
        return digest, f'{where},"sum":"{sum_text(digest)}"'

    def _add_gradient(self, commit: int, owner: int, gradient: Gradient, place: _Place) -> None:
        site = place.site
        digest, tail = self._told(place)
        scale, accumulate = float(gradient.loss_scale), int(gradient.accumulate)
        head = f'{{"kind":"grad","record":{owner},"commit":{commit},{site.line}{tail}'
        self.lines.append(sealed(f'{head},"loss_scale":{dump(number_text(scale))},"accumulate":{accumulate}'))
        self.columns.add_gradient(
            record=owner,
            site=site.line,
            offset=place.offset,
            nbytes=site.nbytes,
            digest=digest,
            loss_scale=scale,
            accumulate=accumulate,
        )

    def _numbers(self, record: Record) -> tuple[str | None, tuple[float, ...], str, str]:
        """Names and values of a record's statistics, its histogram, and what its line says of them."""
        names: str | None = None
        values: tuple[float, ...] = ()
        told = ""
        if record.statistics is not None:
            known = self._fragments.names(record.statistics)
            names, values = known.table, tuple(map(float, record.statistics.values()))
            told = f',"statistics":{{{known.fragment(values)}}}'
        if record.histogram is None:
            return names, values, "", told
        histogram = histogram_fragment(record.histogram)
        return names, values, histogram, f'{told},"histogram":{histogram}'

    def add_graph(self, graph: GraphLog) -> None:
        for content in graph.to_lines():
            self._add_line({"kind": content["kind"], "graph": graph.graph_id, **content})

    def add_rewind(self, step: int, generation: int) -> None:
        self._add_line({"kind": "rewind", "step": step, "generation": generation})

    def add_commit(self, commit: int, captured: CapturedStep, nbytes: int) -> None:
        """The line that makes a step count."""
        graph = None if captured.graph is None else captured.graph.graph_id
        fields = {
            "kind": "commit",
            "commit": commit,
            "step": captured.moment.step,
            "records": len(captured.records),
            "nbytes": nbytes,
            "seconds": captured.seconds,
            "events": captured.event_count,
        }
        self.lines.append(line(fields if graph is None else fields | {"graph": graph}))
        self.columns.add_commit(commit, step_number(captured.moment.step), graph)

    def _kept(self, tensor: Tensor) -> tuple[Tensor, int]:
        """What is stored of a tensor, and where that lies."""
        if self._reduces:
            tensor = reduce(tensor, self._options.dtype, self._options.samples)
        kept = plain(tensor)
        return kept, address_of(kept)

    def _add_line(self, fields: dict[str, object]) -> None:
        self.lines.append(line(fields))
        self.columns.add_line(dump(fields))
