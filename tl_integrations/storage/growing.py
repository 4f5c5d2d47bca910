"""The open end of a bundle: one growing shard, its columns, and the lines that are not written yet."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from tl_integrations.capture.events import Gradient, Moment, Record
from tl_integrations.capture.oplog import GraphLog
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.errors import UnsupportedTensorError
from tl_integrations.storage.columns import Columns
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.record_lines import (
    histogram_fragment,
    moment_fragment,
    site_fragment,
    site_key,
    statistics_fragment,
    step_number,
    tensor_fields,
)
from tl_integrations.storage.shard_file import ShardFile, Written
from tl_integrations.storage.strict_json import dump, number_text
from tl_integrations.storage.tensors import plain, reduce
from tl_integrations.storage.tlspec import MOST_RECORDS_PER_SHARD, line, sealed, sum_text


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
    """

    def __init__(self, shard: ShardFile, first: int, options: WriteOptions) -> None:
        self.shard, self.columns = shard, Columns(first)
        self.lines: list[bytes] = []
        """Written to the index at the next commit."""
        self._options = options
        # Moments, sites and names of statistics repeat: their text is made once, 15 us saved per record.
        self._moments: dict[tuple[Moment, int], str] = {}
        self._sites: dict[object, str] = {}
        self._known_names: dict[tuple[str, ...], tuple[str, list[str]]] = {}

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
        site, place, number = self._site(record), None, self.next_record
        if tensor is not None:
            kept, place = self._store(f"r{number:09d}", tensor, record.name)
            if kept.dtype is not record.dtype or tuple(kept.shape) != tuple(record.shape):
                site = site_fragment(record, (kept.dtype, tuple(kept.shape)))
        moment, step = self._moment(record.moment, generation), step_number(record.moment.step)
        names = self._names(record.statistics)
        statistics: tuple[float, ...] = ()
        if record.statistics is not None:
            statistics = tuple(map(float, record.statistics.values()))
        histogram = "" if record.histogram is None else histogram_fragment(record.histogram)
        shown = "null" if record.moment.step is None else step
        head = f'"kind":"record","record":{number},"commit":{commit},"step":{shown}'
        tail = _place_fragment(place)
        tail += "" if names is None else f',"statistics":{{{statistics_fragment(names[1], statistics)}}}'
        tail += f',"histogram":{histogram}' if histogram else ""
        self.lines.append(sealed(f'{head},{moment},"run":{record.run_index},{site}{tail}'))
        self.columns.add(
            step=step,
            commit=commit,
            run=record.run_index,
            moment=moment,
            site=site,
            offset=-1 if place is None else place.offset,
            nbytes=-1 if place is None else place.nbytes,
            digest=bytes(16) if place is None else place.digest,
            names=None if names is None else names[0],
            statistics=statistics,
            histogram=histogram,
        )
        return 0 if place is None else place.nbytes

    def add_gradient(self, commit: int, gradient: Gradient, tensor: Tensor) -> int:
        """Append the gradient of the last record. Returns: its bytes."""
        owner = self.next_record - 1
        kept, place = self._store(f"g{owner:09d}", tensor, f"gradient of record {owner}")
        site = dump(tensor_fields(kept.dtype, tuple(kept.shape)))[1:-1]
        scale, accumulate = float(gradient.loss_scale), int(gradient.accumulate)
        head = f'"kind":"grad","record":{owner},"commit":{commit},{site}{_place_fragment(place)}'
        self.lines.append(sealed(f'{head},"loss_scale":{dump(number_text(scale))},"accumulate":{accumulate}'))
        self.columns.add_gradient(
            record=owner,
            site=site,
            offset=place.offset,
            nbytes=place.nbytes,
            digest=place.digest,
            loss_scale=scale,
            accumulate=accumulate,
        )
        return place.nbytes

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

    def _store(self, key: str, tensor: Tensor, name: str) -> tuple[Tensor, Written]:
        try:
            kept = plain(reduce(tensor, self._options.dtype, self._options.samples))
        except (RuntimeError, TypeError) as error:
            raise UnsupportedTensorError(
                f"The tensor of {name!r} cannot be stored: {error}. Leave it out of `save=`."
            ) from error
        return kept, self.shard.append(key, kept)

    def _add_line(self, fields: dict[str, object]) -> None:
        self.lines.append(line(fields))
        self.columns.add_line(dump(fields))

    def _names(self, statistics: Mapping[str, float] | None) -> tuple[str, list[str]] | None:
        """The names of statistics as a JSON list, and as JSON texts."""
        if statistics is None:
            return None
        key = tuple(statistics)
        found = self._known_names.get(key)
        if found is None:
            found = self._known_names[key] = (dump(list(key)), [dump(name) for name in key])
        return found

    def _moment(self, moment: Moment, generation: int) -> str:
        key = (moment, generation)
        found = self._moments.get(key)
        if found is None:
            found = self._moments[key] = moment_fragment(moment, generation)
        return found

    def _site(self, record: Record) -> str:
        key = site_key(record)
        found = self._sites.get(key)
        if found is None:
            found = self._sites[key] = site_fragment(record, None)
        return found


def _place_fragment(place: Written | None) -> str:
    if place is None:
        return ""
    where = f',"shard":{place.shard},"offset":{place.offset},"nbytes":{place.nbytes}'
    return f'{where},"sum":"{sum_text(place.digest)}"'
