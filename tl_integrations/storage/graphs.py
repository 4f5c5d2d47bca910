"""The graphs of a bundle: which forward had which, each decoded when it is asked for."""

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from tl_integrations.capture.events import Moment
from tl_integrations.capture.oplog import GraphLog
from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.table import Part
from tl_integrations.storage.tlspec import NO_STEP, Plain


class StoredGraphs(Mapping[tuple[Moment, int], GraphLog]):
    """Graphs by moment and run, over the parts of a bundle and the rows of each that count."""

    def __init__(self, parts: Sequence[Part], kept: Sequence[np.ndarray]) -> None:
        self._parts, self._kept = parts, kept
        self._known: dict[str, GraphLog] = {}

    def __getitem__(self, key: tuple[Moment, int]) -> GraphLog:
        moment, run = key
        step = NO_STEP if moment.step is None else moment.step
        for part, kept in zip(self._parts, self._kept):
            columns = part.segment.columns
            here = kept[(columns["step"][kept] == step) & (columns["run"][kept] == run)]
            for row in here.tolist():
                if Moment(step=moment.step, **part.moments[int(columns["moment"][row])]) == moment:
                    graph = self._graph_of(part, int(columns["commit"][row]))
                    if graph is not None:
                        return graph
        return self._graph_without_rows(key, step)

    def _graph_without_rows(self, key: tuple[Moment, int], step: int) -> GraphLog:
        for part in self._parts:
            if not part.segment.graphs:
                continue
            columns = part.segment.columns
            at = np.flatnonzero((columns["commit_steps"] == step) & (columns["commit_graphs"] >= 0))
            if len(at) and key == (Moment(step=key[0].step), 1):
                graph = self._graph_of(part, int(columns["commits"][at[0]]))
                if graph is not None:
                    return graph
        raise KeyError(key)

    def __iter__(self) -> Iterator[tuple[Moment, int]]:
        seen = dict.fromkeys(self._keys_of_rows())
        yield from seen
        # A graph whose step kept no record is found by its step alone.
        steps = {moment.step for moment, _ in seen}
        for part in self._parts:
            if not part.segment.graphs:
                continue
            columns = part.segment.columns
            for step, graph in zip(columns["commit_steps"].tolist(), columns["commit_graphs"].tolist()):
                moment = Moment(step=None if step == NO_STEP else step)
                if graph >= 0 and moment.step not in steps:
                    yield moment, 1

    def _keys_of_rows(self) -> Iterator[tuple[Moment, int]]:
        for part, kept in zip(self._parts, self._kept):
            columns = part.segment.columns
            for row in kept.tolist():
                if self._id_of(part, int(columns["commit"][row])) is not None:
                    step = int(columns["step"][row])
                    about = part.moments[int(columns["moment"][row])]
                    yield Moment(step=None if step == NO_STEP else step, **about), int(columns["run"][row])

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        return any(len(part.segment.graphs) for part in self._parts)

    def _id_of(self, part: Part, commit: int) -> str | None:
        """The graph's id on a commit's line, which may stand in a later part of the same bundle."""
        return self._ids.get((part.bundle, commit))

    @cached_property
    def _ids(self) -> dict[tuple[Path, int], str]:
        found: dict[tuple[Path, int], str] = {}
        for part in self._parts:
            if part.segment.graphs:
                columns = part.segment.columns
                for commit, code in zip(columns["commits"].tolist(), columns["commit_graphs"].tolist()):
                    if code >= 0:
                        found.setdefault((part.bundle, commit), str(part.segment.graphs[code]))
        return found

    def _graph_of(self, part: Part, commit: int) -> GraphLog | None:
        graph_id = self._id_of(part, commit)
        if graph_id is None:
            return None
        key = f"{part.bundle}\0{graph_id}"
        if key not in self._known:
            self._known[key] = self._decode(part, graph_id)
        return self._known[key]

    def _decode(self, part: Part, graph_id: str) -> GraphLog:
        lines: dict[tuple[object, object], Plain] = {}
        for other in self._parts:
            if other.bundle == part.bundle:
                for _, line in other.segment.lines:
                    if line.get("graph") == graph_id:
                        lines.setdefault((str(line.get("kind")), str(line.get("index"))), line)
        try:
            return GraphLog.from_lines(lines.values())
        except (ValueError, TypeError, KeyError) as error:
            raise BundleCorruptError(
                f"The graph {graph_id[:40]!r} of {str(part.bundle)!r}: {error}"
            ) from error
