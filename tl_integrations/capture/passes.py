"""A watched forward that has ended, and records made of it when somebody asks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from time import perf_counter

from tl_integrations.capture.arena import Copy, copied
from tl_integrations.capture.catch import Catch
from tl_integrations.capture.events import Event, Moment, Record
from tl_integrations.capture.graph_building import build_graph
from tl_integrations.capture.grouping import layer_labels
from tl_integrations.capture.labels import raw_labels
from tl_integrations.capture.oplog import GraphLog
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.capture.records import make_records, without_tensors
from tl_integrations.capture.run import Run
from tl_integrations.capture.selector import Selector
from tl_integrations.capture.selectors import Label
from tl_integrations.capture.statistics import collect
from tl_integrations.errors import UnknownNameError, near_names


class Pass:
    """One forward from its run: records, and the graph where it was logged."""

    def __init__(
        self,
        run: Run,
        *,
        forced_eager: bool,
        late: Selector | None,
    ) -> None:
        self.run = run
        self._raw = run.raw
        self._forced_eager = forced_eager
        self._late = late
        """The selector, where it can be answered only by final labels."""

    @property
    def key(self) -> tuple[Moment, int]:
        return self.run.moment, self.run.run_index

    @property
    def logged(self) -> bool:
        """Whether the graph of this forward is known."""
        return self._raw is not None

    @property
    def failing(self) -> tuple[str, str] | None:
        """Function and argument shapes of the call that raised."""
        return None if self._raw is None else self._raw.failing

    @cached_property
    def graph(self) -> GraphLog | None:
        """The forward's log; made when first asked for."""
        return (
            None
            if self._raw is None
            else build_graph(self._raw, self.run.calls, self.run.seconds, source_text=self.run.source_text)
        )

    @cached_property
    def raw_labels(self) -> list[str]:
        """Label in flight of every line of the graph."""
        return [] if self.graph is None else raw_labels(self.graph)

    @cached_property
    def catches(self) -> list[Catch]:
        """What was kept, without what final labels decided against."""
        return [
            caught for caught, label in self._labelled() if self._late is None or self._wanted(caught, label)
        ]

    @cached_property
    def records(self) -> list[Record]:
        """Every record, in capture order, with the numbers that were measured."""
        _fetch_numbers(self.catches)
        graph = self.graph
        labels, passes = layer_labels(graph) if graph is not None else (None, None)
        return make_records(
            self.run,
            self.catches,
            labels=labels,
            raw_labels=self.raw_labels if graph is not None else None,
            passes=passes,
            forced_eager=self._forced_eager,
            counted=self.run.counts_ops,
        )

    def close(self) -> None:
        """Stop listening for gradients."""
        for caught in self.run.catches:
            if caught.gradient is not None:
                caught.gradient.close()

    def check_final_labels(self) -> None:
        """Raise UnknownNameError when a final label that was asked for is not one of this forward's."""
        if self._late is None or self.graph is None:
            return
        labels, passes = layer_labels(self.graph)
        there = {name for name, k in zip(labels, passes) if name for name in (name, f"{name}:{k}")}
        for part in self._late.parts():
            if isinstance(part, Label) and part.is_final and part.name not in there:
                raise UnknownNameError(
                    f"No op of this forward has the label {part.name!r}. {near_names(part.name, there)}"
                    "`recording.graph` and `tl.trace` list all of them."
                )

    def _labelled(self) -> list[tuple[Catch, str | None]]:
        if self._late is None or self.graph is None:
            return [(caught, None) for caught in self.run.catches]
        labels, passes = layer_labels(self.graph)
        return [
            (caught, None if caught.line is None else f"{labels[caught.line]}:{passes[caught.line]}")
            for caught in self.run.catches
        ]

    def _wanted(self, caught: Catch, label: str | None) -> bool:
        assert self._late is not None
        if label is None or caught.event is None:
            return True
        event: Event = replace(caught.event, final_label=label)
        return bool(self._late(event))


class SentPass:
    """What stays in memory of a pass that went to a storage: everything but tensors."""

    def __init__(self, sent: Pass) -> None:
        self.key: tuple[Moment, int] = sent.key
        self.logged: bool = sent.logged
        self.graph: GraphLog | None = sent.graph
        self.records: list[Record] = [without_tensors(record) for record in sent.records]


def captured_step(
    passes: Sequence[Pass], *, loss_scale: float = 1.0, accumulate: int = 1, copy: Copy = copied
) -> CapturedStep:
    """Passes as a sink takes them: owned memory, numbers on the host, gradients that arrived."""
    start = perf_counter()
    catches = [caught for one in passes for caught in one.catches]
    for caught in catches:
        if caught.payload is not None:
            caught.payload.own(copy)
        if caught.gradient is not None:
            caught.gradient.finish(loss_scale, accumulate, copy)
    _fetch_numbers(catches)
    graphs = [one.graph for one in passes if one.logged]
    return CapturedStep(
        moment=passes[-1].run.moment if passes else Moment(),
        records=tuple(record for one in passes for record in one.records),
        seconds=perf_counter() - start,
        event_count=sum(one.run.event_count for one in passes),
        graph=graphs[0] if len(graphs) == 1 else None,
    )


def _fetch_numbers(catches: Sequence[Catch]) -> None:
    """Numbers to the host, of all that were measured and not fetched yet."""
    waiting = [caught for caught in catches if caught.measured is not None]
    for caught, numbers in zip(waiting, collect([caught.measured for caught in waiting]), strict=True):
        caught.numbers, caught.measured = numbers, None


class PassGraphs(Mapping[tuple[Moment, int], GraphLog]):
    """The graphs of several passes by moment and run, made when first read."""

    def __init__(self, passes: Sequence[Pass | SentPass]) -> None:
        self._passes = {one.key: one for one in passes if one.logged}

    def __getitem__(self, key: tuple[Moment, int]) -> GraphLog:
        graph = self._passes[key].graph
        assert graph is not None
        return graph

    def __iter__(self) -> Iterator[tuple[Moment, int]]:
        return iter(self._passes)

    def __len__(self) -> int:
        return len(self._passes)
