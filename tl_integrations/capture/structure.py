"""What follows from a graph's log: labels, passes, children, the nesting of module calls."""

import gc
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property

from tl_integrations.capture.grouping import layer_labels
from tl_integrations.capture.oplog import GraphLog, OpLine


class Structure:
    """The log's lines and module calls with everything that can be derived of them; plain values only.

    Lines are numbers throughout. Parameters are lines, but no nodes of the graph: `nodes` leaves them out.
    """

    def __init__(self, log: GraphLog) -> None:
        self.log = log
        self.lines: Sequence[OpLine] = log.lines
        with _collection_paused():
            labels, passes = layer_labels(log)
            self.labels: list[str] = labels
            self.passes: list[int] = passes
            self.nodes: list[int] = [i for i, line in enumerate(log.lines) if line.kind != "parameter"]
            self.members: dict[str, list[int]] = {}
            for node in self.nodes:
                self.members.setdefault(self.labels[node], []).append(node)

    def name(self, line: int) -> str:
        """The label, with `:k` where its layer has several passes."""
        label = self.labels[line]
        return label if len(self.members[label]) == 1 else f"{label}:{self.passes[line]}"

    def places(self) -> dict[str, int]:
        """Position of every name among the nodes."""
        return {self.name(line): place for place, line in enumerate(self.nodes)}

    def parents(self, line: int) -> list[int]:
        """The nodes it read, in order, repeats kept."""
        return [read for read in self.lines[line].reads if self.lines[read].kind != "parameter"]

    def parameters(self, line: int) -> list[int]:
        """The parameters it read, each once."""
        reads = self.lines[line].reads
        return list(dict.fromkeys(read for read in reads if self.lines[read].kind == "parameter"))

    @cached_property
    def children(self) -> list[list[int]]:
        """For every line the nodes that read it, in order, each once."""
        with _collection_paused():
            found: list[list[int]] = [[] for _ in self.lines]
            for node in self.nodes:
                for read in self.lines[node].reads:
                    readers = found[read]
                    if not readers or readers[-1] != node:
                        readers.append(node)
        return found

    @cached_property
    def ops(self) -> list[int]:
        """Lines that are results of functions."""
        return [node for node in self.nodes if self.lines[node].kind == "op"]

    @cached_property
    def steps(self) -> dict[int, int]:
        """Which op a line is, 1-based."""
        return {line: step for step, line in enumerate(self.ops, 1)}

    @cached_property
    def raw_labels(self) -> dict[str, int]:
        """Labels in flight, such as `relu_1_3_raw`, and their lines."""
        counts: dict[str, int] = defaultdict(int)
        labels: dict[str, int] = {}
        for index, node in enumerate(self.nodes, 1):
            kind = "buffer" if self.lines[node].kind == "constant" else self.lines[node].type
            counts[kind] += 1
            labels[f"{kind}_{counts[kind]}_{index}_raw"] = node
        return labels

    @cached_property
    def raw_label_of(self) -> dict[int, str]:
        return {line: label for label, line in self.raw_labels.items()}

    @cached_property
    def short_labels(self) -> dict[str, str]:
        """Labels without their last number, and the layers they name: `relu_1` of `relu_1_2`."""
        return {label.rsplit("_", 1)[0]: label for label in self.members if label.count("_") > 1}

    @cached_property
    def calls_at(self) -> dict[str, list[int]]:
        """Module calls by address, every alias included."""
        found: dict[str, list[int]] = defaultdict(list)
        for index, call in enumerate(self.log.modules):
            for address in (call.address, *call.aliases):
                found[address].append(index)
        return dict(found)

    @cached_property
    def stacks(self) -> list[tuple[str, ...]]:
        """For every module call those around it and itself, outermost first, without the root: `addr:k`."""
        found: list[tuple[str, ...]] = []
        for call in self.log.modules:
            own = () if call.parent < 0 else (*found[call.parent], f"{call.address}:{call.pass_index}")
            found.append(own)
        return found

    @cached_property
    def ends(self) -> list[int]:
        """For every module call the next one that is not inside it: calls are numbered as they begin."""
        modules = self.log.modules
        ends = list(range(1, len(modules) + 1))
        for index in range(len(modules) - 1, 0, -1):
            parent = modules[index].parent
            ends[parent] = max(ends[parent], ends[index])
        return ends

    @cached_property
    def returned(self) -> list[int]:
        """What the model returned, leaf by leaf: the lines that its outputs read."""
        return [read for line in self.lines if line.kind == "output" for read in line.reads]

    @cached_property
    def files(self) -> dict[str, tuple[int, int]]:
        """Source files with their modification time in ns and size at capture."""
        root = self.log.modules[0] if self.log.modules else None
        return {} if root is None else {name: (modified, size) for name, modified, size in root.files}

    @cached_property
    def _nodes_of_call(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = defaultdict(list)
        for node in self.nodes:
            if self.lines[node].kind in ("op", "buffer", "constant"):
                found[self.lines[node].call].append(node)
        return found

    def inside(self, call: int) -> list[int]:
        """Ops, buffers and constants within a module call, at any depth, in order."""
        held = self._nodes_of_call
        return sorted(node for c in range(call, self.ends[call]) for node in held.get(c, ()))


@contextmanager
def _collection_paused() -> Iterator[None]:
    # A big graph allocates many small containers at once and frees none: with the collector on, 10,000 ops
    # cost six times as much (11 us instead of 1.7 us per op).
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
