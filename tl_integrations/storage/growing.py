"""The open end of a bundle: one growing shard, its columns, and the lines that are not written yet."""

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from torch import Tensor

from tl_integrations.capture.events import Record
from tl_integrations.capture.oplog import GraphLog
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.storage.chunk_lines import gradient_line, numbers_of, record_lines, told_of
from tl_integrations.storage.chunks import Chunk
from tl_integrations.storage.columns import Columns, Rows
from tl_integrations.storage.fragments import Fragments
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.record_lines import step_number
from tl_integrations.storage.shard_file import ShardFile
from tl_integrations.storage.sites import Sites
from tl_integrations.storage.stored import Stored, records_within, stored_of
from tl_integrations.storage.strict_json import dump
from tl_integrations.storage.tensors import all_plain, plain, reduce, refusal
from tl_integrations.storage.tlspec import MOST_RECORDS_PER_SHARD, line

_NO_SUM = bytes(16)
_AT_ONCE = 64 << 20
"""Bytes of tensors that are taken, written and told of in one go. Many, because after copying the
interpreter's own code has left the processor's cache; bounded, because copies (casts) live so long."""


class _Places(NamedTuple):
    """Where tensors lie in the shard: columns of one length."""

    starts: Sequence[int]
    digests: Sequence[bytes]
    told: Sequence[str]
    """What lines say of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place to come back to."""

    shard: int
    tensors: tuple[int, int, int]
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
        full = self.shard.nbytes >= self._options.shard_bytes or len(self.columns) >= MOST_RECORDS_PER_SHARD
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

    def add_records(self, commit: int, chunk: Chunk, generation: int) -> Added:
        """Append a chunk's first records, one at least: until the shard is full, or enough for one go."""
        chunk = chunk.cut(0, self._most(chunk))
        records = chunk.records
        tensors = self._plain(records, chunk.tensors, "")
        gradients = self._plain(records, chunk.gradients, "gradient of ")
        sites = self._fragments.sites.of(records, tensors)
        stored = stored_of(sites, tensors, gradients, self._fragments.sites.gradient)
        starts = self.shard.starts(stored.sites.nbytes)
        most = records_within(stored, starts, self._options.shard_bytes, len(chunk))
        if most < len(chunk):
            return self.add_records(commit, chunk.cut(0, most), generation)
        places = self._write(records, stored, starts)
        self._add_lines(commit, generation, records, sites, stored, places)
        return Added(records=len(chunk), gradients=stored.gradients, nbytes=sum(stored.sites.nbytes))

    def _most(self, chunk: Chunk) -> int:
        """How many records may be taken at once: one at least."""
        dimensions = 2 * max([len(record.shape) for record in chunk.records])
        room = max(self.shard.room(dimensions), 1)
        most = min(len(chunk), MOST_RECORDS_PER_SHARD - len(self.columns), room)
        return min(bisect_left(list(accumulate(chunk.sizes[:most])), _AT_ONCE) + 1, most)

    def _plain(
        self, records: Sequence[Record], tensors: Sequence[Tensor | None], which: str
    ) -> Sequence[Tensor | None]:
        """What is stored of each tensor, its elements in order."""
        given = [tensor for tensor in tensors if tensor is not None]
        if not self._reduces and all_plain(given):
            return tensors
        kept: list[Tensor | None] = []
        for record, tensor in zip(records, tensors):
            if tensor is not None:
                try:
                    if self._reduces:
                        tensor = reduce(tensor, self._options.dtype, self._options.samples)
                    tensor = plain(tensor)
                except (RuntimeError, TypeError) as error:
                    raise refusal(f"{which}{record.name}", error) from error
            kept.append(tensor)
        return kept

    def _write(self, records: Sequence[Record], stored: Stored, starts: Sequence[int]) -> _Places:
        first, sites, shard = 2 * self.next_record, stored.sites, self.shard
        names = [first + name for name in stored.names]
        digests = shard.append(names, sites.kinds, starts, stored.contents(records))
        return _Places(starts[:-1], digests, told_of(shard.number, starts[:-1], sites, digests))

    def _add_lines(
        self,
        commit: int,
        generation: int,
        records: Sequence[Record],
        sites: Sites,
        stored: Stored,
        places: _Places,
    ) -> None:
        """Lines and columns of records whose bytes are written."""
        size = len(records)
        whens = self._fragments.whens(records, generation)
        numbers = numbers_of(records, self._fragments)
        told = stored.by_record(size, places.told, "")
        lines = record_lines(self.next_record, commit, records, whens, sites, told, numbers)
        if stored.gradients:
            self._add_gradients(commit, records, stored, places, lines)
        self.lines += lines
        rows = Rows(
            step=whens.steps,
            commit=[commit] * size,
            run=[record.run_index for record in records],
            offset=stored.by_record(size, places.starts, -1),
            nbytes=sites.nbytes,
            moment=whens.moments,
            site=sites.lines,
            statistics_names=numbers.names,
            digests=stored.by_record(size, places.digests, _NO_SUM),
            statistics=numbers.values,
            histograms=numbers.histograms,
        )
        self.columns.extend(rows)

    def _add_gradients(
        self, commit: int, records: Sequence[Record], stored: Stored, places: _Places, lines: list[str]
    ) -> None:
        """Columns of the gradients, and their lines, each behind that of its record."""
        for name, site, start, digest, told in zip(stored.names, stored.sites.each, *places, strict=True):
            gradient, position = records[name // 2].gradient, name // 2
            if name % 2 == 0 or gradient is None:
                continue
            owner, scale = self.next_record + position, float(gradient.loss_scale)
            lines[position] += gradient_line(commit, owner, gradient, site, told)
            self.columns.add_gradient(
                record=owner,
                site=site.line,
                offset=start,
                nbytes=site.nbytes,
                digest=digest,
                loss_scale=scale,
                accumulate=int(gradient.accumulate),
            )

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

    def _add_line(self, fields: dict[str, object]) -> None:
        self.lines.append(line(fields))
        self.columns.add_line(dump(fields))
