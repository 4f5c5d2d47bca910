"""The open end of a bundle: one growing shard, its columns, and the lines that are not written yet."""

from dataclasses import dataclass

from torch import Tensor

from tl_integrations.capture.events import Gradient, Record
from tl_integrations.capture.oplog import GraphLog
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.errors import UnsupportedTensorError
from tl_integrations.storage.columns import Columns
from tl_integrations.storage.fragments import Fragments
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.record_lines import histogram_fragment, statistics_fragment, step_number
from tl_integrations.storage.shard_file import ShardFile
from tl_integrations.storage.strict_json import dump, number_text
from tl_integrations.storage.tensors import Elements, plain, reduce, to_bytes
from tl_integrations.storage.tlspec import MOST_RECORDS_PER_SHARD, line, sealed, sum_text

_NO_SUM = bytes(16)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A place to come back to."""

    shard: int
    tensors: tuple[int, int, int, int]
    rows: tuple[int, int, int, int]
    lines: int


class Growing:
    """Takes records until its shard is full.

    Args:
        shard: Empty.
        first: Number of the first record.
        fragments: Texts known from earlier shards.
    """

    def __init__(self, shard: ShardFile, first: int, options: WriteOptions, fragments: Fragments) -> None:
        self.shard, self.columns = shard, Columns(first)
        self.lines: list[bytes] = []
        """Written to the index at the next commit."""
        self._options, self._fragments = options, fragments

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

    def add_record(self, commit: int, record: Record, tensor: Tensor | None, generation: int) -> int:
        """Append one record. Returns: the bytes of its tensor."""
        number, moment_step, run = self.next_record, record.moment.step, record.run_index
        offset = nbytes = -1
        digest, tail = _NO_SUM, ""
        if tensor is None:
            site = self._fragments.site(record, None)
        else:
            kept, content = self._elements(tensor, record.name)
            site, nbytes = self._fragments.site(record, kept), len(content)
            offset, digest = self.shard.append(f"r{number:09d}", site.entry, content)
            tail = _place_fragment(self.shard.number, offset, nbytes, digest)
        moment, step = self._fragments.moment(record.moment, generation), step_number(moment_step)
        names, histogram = None, ""
        statistics: tuple[float, ...] = ()
        if record.statistics is not None:
            known = self._fragments.names(record.statistics)
            names, statistics = known.table, tuple(map(float, record.statistics.values()))
            tail += f',"statistics":{{{statistics_fragment(known.keys, statistics)}}}'
        if record.histogram is not None:
            histogram = histogram_fragment(record.histogram)
            tail += f',"histogram":{histogram}'
        shown = "null" if moment_step is None else step
        self.lines.append(
            sealed(
                f'"kind":"record","record":{number},"commit":{commit},"step":{shown},{moment},"run":{run},'
                f"{site.line}{tail}"
            )
        )
        self.columns.add(
            (step, commit, run, offset, nbytes), moment, site.line, digest, names, statistics, histogram
        )
        return max(nbytes, 0)

    def add_gradient(self, commit: int, gradient: Gradient, tensor: Tensor) -> int:
        """Append the gradient of the last record. Returns: its bytes."""
        owner = self.next_record - 1
        kept, content = self._elements(tensor, f"gradient of record {owner}")
        site, nbytes = self._fragments.gradient(kept), len(content)
        offset, digest = self.shard.append(f"g{owner:09d}", site.entry, content)
        place = _place_fragment(self.shard.number, offset, nbytes, digest)
        scale, accumulate = float(gradient.loss_scale), int(gradient.accumulate)
        head = f'"kind":"grad","record":{owner},"commit":{commit},{site.line}{place}'
        self.lines.append(sealed(f'{head},"loss_scale":{dump(number_text(scale))},"accumulate":{accumulate}'))
        self.columns.add_gradient(
            record=owner,
            site=site.line,
            offset=offset,
            nbytes=nbytes,
            digest=digest,
            loss_scale=scale,
            accumulate=accumulate,
        )
        return nbytes

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

    def _elements(self, tensor: Tensor, name: str) -> tuple[Tensor, Elements]:
        """What is stored of a tensor, and its bytes."""
        try:
            kept = plain(reduce(tensor, self._options.dtype, self._options.samples))
            return kept, to_bytes(kept)
        except (RuntimeError, TypeError) as error:
            raise UnsupportedTensorError(
                f"The tensor of {name!r} cannot be stored: {error}. Leave it out of `save=`."
            ) from error

    def _add_line(self, fields: dict[str, object]) -> None:
        self.lines.append(line(fields))
        self.columns.add_line(dump(fields))


def _place_fragment(shard: int, offset: int, nbytes: int, digest: bytes) -> str:
    return f',"shard":{shard},"offset":{offset},"nbytes":{nbytes},"sum":"{sum_text(digest)}"'
