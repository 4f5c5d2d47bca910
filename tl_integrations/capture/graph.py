"""The full graph of one forward: `Trace`, and `build`, which makes one from a log and what was kept."""

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, overload

from tl_integrations.capture import drawing, tables
from tl_integrations.capture.differences import Difference, first_difference
from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.kept_lines import by_line
from tl_integrations.capture.layers import Layer
from tl_integrations.capture.modules import Module, ModuleCall
from tl_integrations.capture.named import Named
from tl_integrations.capture.oplog import GraphLog
from tl_integrations.capture.ops import Op, Records
from tl_integrations.capture.protocols import CapturedStep, Outcome
from tl_integrations.capture.sites import selected_lines
from tl_integrations.capture.structure import Structure
from tl_integrations.capture.trace_lookup import find
from tl_integrations.errors import RecordLookupError, UnknownNameError

if TYPE_CHECKING:
    import networkx
    import pandas


class Trace:
    """Every op of one forward, its tensors where they were kept, and the modules around them.

    An int gives an op, a slice a list of ops, a text the layer, op or module output that it names:
    `trace["relu_1_2"]`, `trace["linear_1_1:2"]`, `trace["relu_1"]`, `trace["encoder"]`, `trace["fc:2"]`.

    Args:
        structure: The graph.
        records: What was kept, by line of the graph's log.
        outcome: How the forward ended; after a failure the trace holds what ran before it.
    """

    def __init__(self, structure: Structure, records: Records, outcome: Outcome = Outcome()) -> None:
        self._structure = structure
        self._records = records
        self.outcome = outcome

    @property
    def ops(self) -> Named[Op]:
        """Inputs, buffers, ops and outputs in the order of the forward, one per tensor."""
        structure, records = self._structure, self._records
        return Named("op", structure.nodes, structure.places, lambda line: Op(structure, records, line))

    @property
    def layers(self) -> Named[Layer]:
        """The same with all passes of an op as one layer: the rolled graph."""
        labels = self.layer_labels
        structure, records = self._structure, self._records
        return Named(
            "layer",
            range(len(labels)),
            lambda: {label: place for place, label in enumerate(labels)},
            lambda place: Layer(structure, records, labels[place]),
        )

    @property
    def layer_labels(self) -> list[str]:
        """Labels of all layers, in order of their first pass."""
        return list(self._structure.members)

    @property
    def modules(self) -> Named[Module]:
        """The modules that were called, in order of their first call; the root is `""`."""
        structure = self._structure
        first = [calls[0] for calls in {c[0]: c for c in structure.calls_at.values()}.values()]
        places = {call: place for place, call in enumerate(first)}
        names = {address: places[calls[0]] for address, calls in structure.calls_at.items()}
        return Named("module", first, lambda: names, lambda index: Module(structure, self._records, index))

    @property
    def module_calls(self) -> Named[ModuleCall]:
        """Every module call, in order: `block:1`, `block:2`; the root is `self:1`."""
        calls = range(len(self._structure.log.modules))
        names = {self._call(index).label: index for index in calls}
        return Named("module call", calls, lambda: names, self._call)

    @property
    def input_layers(self) -> list[str]:
        """Labels of the model's arguments."""
        return self._labels_of("input")

    @property
    def output_layers(self) -> list[str]:
        """Labels of the leaves of what the model returned."""
        return self._labels_of("output")

    @property
    def saved_layers(self) -> list[str]:
        """Labels of the layers of which at least one pass was kept."""
        kept = {self._structure.labels[line] for line, record in self._records.items() if record.payload}
        return [label for label in self._structure.members if label in kept]

    @property
    def num_layers(self) -> int:
        """Layers, with inputs, buffers and outputs."""
        return len(self._structure.members)

    @property
    def num_ops(self) -> int:
        """Results of functions: `ops` without inputs, buffers and outputs."""
        return len(self._structure.ops)

    @property
    def num_tensors(self) -> int:
        """Everything in `ops`."""
        return len(self._structure.nodes)

    @property
    def num_saved_ops(self) -> int:
        """How many entries of `ops` have their tensor."""
        return sum(record.payload is not None for record in self._records.values())

    @property
    def num_params(self) -> int:
        """Elements of all parameters of the model, read or not."""
        return self.modules[0].num_params if self._structure.log.modules else 0

    @property
    def total_flops_forward(self) -> int:
        """FLOPs of the ops that have a formula; `unknown_flops` names the others."""
        return sum(op.flops_forward or 0 for op in self.ops)

    @property
    def total_macs_forward(self) -> int:
        """Multiply-accumulates of the ops that have a formula."""
        return sum(op.macs_forward or 0 for op in self.ops)

    @property
    def unknown_flops(self) -> list[str]:
        """Names of the functions without a formula, each once."""
        return list(dict.fromkeys(op.func_name for op in self.ops if op.flops_forward is None))

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors that ops made, kept or not; a view counts in full."""
        return sum(op.nbytes for op in self.ops if op.kind == "op")

    @property
    def saved_nbytes(self) -> int:
        """Bytes of the tensors that were kept; an output shares its op's tensor."""
        return sum(record.payload.nbytes for record in self._kept() if record.payload is not None)

    @property
    def seconds(self) -> float | None:
        """Seconds of the forward, capture included."""
        modules = self._structure.log.modules
        return modules[0].seconds if modules else None

    @property
    def model_name(self) -> str:
        """Class of the model."""
        modules = self._structure.log.modules
        return modules[0].class_name if modules else ""

    @property
    def is_recurrent(self) -> bool:
        """Whether a layer has more than one pass."""
        return any(len(lines) > 1 for lines in self._structure.members.values())

    @property
    def halted(self) -> bool:
        """Whether `halt` ended the forward."""
        return self.outcome.status == "halted"

    @property
    def halt_reason(self) -> str | None:
        """What ended it, in words; None where nothing did."""
        return self.outcome.reason if self.halted else None

    @property
    def halt_frontier(self) -> str | None:
        """Label of the last op before the halt."""
        ops = self._structure.ops
        return self._structure.name(ops[-1]) if self.halted and ops else None

    @property
    def graph_id(self) -> str:
        """Equal for forwards that differ in nothing but values and time."""
        return self._structure.log.graph_id

    @property
    def log(self) -> GraphLog:
        """The graph as plain records."""
        return self._structure.log

    def __len__(self) -> int:
        return len(self._structure.nodes)

    def __iter__(self) -> Iterator[Op]:
        return iter(self.ops)

    def __contains__(self, key: object) -> bool:
        if isinstance(key, Op | Layer):
            return key._structure is self._structure
        if not isinstance(key, str):
            return False
        try:
            find(self._structure, self._records, key)
        except RecordLookupError:
            return False
        return True

    @overload
    def __getitem__(self, key: int) -> Op: ...
    @overload
    def __getitem__(self, key: slice) -> list[Op]: ...
    @overload
    def __getitem__(self, key: str) -> Op | Layer: ...
    def __getitem__(self, key: int | slice | str) -> Op | Layer | list[Op]:
        return find(self._structure, self._records, key) if isinstance(key, str) else self.ops[key]

    def find_sites(self, selector: Any, *, lookback: int = 8) -> list[Op]:
        """The ops that a selector takes, in order: what `save=` would keep.

        Args:
            selector: As for `save=`; a module's output counts as the op that made it.
            lookback: How many past ops `preceded_by` sees.
        Raises:
            SelectorError: for `followed_by`, which only a running forward can answer.
            UnknownNameError: if it names nothing of this graph.
        """
        lines = selected_lines(self._structure, selector, lookback=lookback)
        return [Op(self._structure, self._records, line) for line in lines]

    def keeping(self, items: Sequence[Any]) -> "Trace":
        """The same graph with only the tensors that the items name.

        Args:
            items: Selectors, their texts, and positions in `ops` (`-1` is the last).
        Raises:
            UnknownNameError: for a position beyond the last op, or a name of nothing.
        """
        nodes = self._structure.nodes
        kept: set[int] = set()
        for item in items:
            if type(item) is not int:
                kept.update(op.line for op in self.find_sites(item))
            elif -len(nodes) <= item < len(nodes):
                kept.add(nodes[item])
            else:
                raise UnknownNameError(f"save=[{item}]: the forward had {len(nodes)} tensors.")
        records = {line: record for line, record in self._records.items() if line in kept}
        return Trace(self._structure, records, self.outcome)

    def compare(self, other: "Trace", *, rtol: float = 1e-5, atol: float = 1e-8) -> Difference | None:
        """The first op, in order, at which two traces part: in graph, shape, dtype or value; else None.

        Values are compared where both kept them, as `torch.testing.assert_close` does with `equal_nan=True`.

        Args:
            other: Another trace, usually of the same model.
            rtol: Relative tolerance of values.
            atol: Absolute tolerance of values.
        """
        return first_difference(self.ops[:], other.ops[:], rtol=rtol, atol=atol)

    def summary(self) -> str:
        """A table of the modules: shapes, parameters, FLOPs, memory, time; and the totals."""
        return tables.summary(self._structure, self._title())

    def to_pandas(self) -> "pandas.DataFrame":
        """One row per op, in order.

        Raises:
            ImportError: if pandas is not installed.
        """
        return tables.to_pandas(self.ops)

    def to_networkx(self, *, rolled: bool = False) -> "networkx.MultiDiGraph[str]":
        """Ops as nodes, or layers when rolled; an edge for every read.

        Args:
            rolled: One node per layer instead of one per pass.
        Returns:
            A graph whose nodes are labels, with the facts of the op as attributes.
        Raises:
            ImportError: if networkx is not installed.
        """
        return tables.to_networkx(self._structure, self.ops, rolled=rolled)

    def to_dot(self, *, rolled: bool = True, max_nodes: int = 400) -> str:
        """The graph in the DOT language, with modules as clusters.

        Args:
            rolled: One node per layer instead of one per pass.
            max_nodes: Beyond so many nodes deep modules are folded into one node each.
        """
        return drawing.to_dot(self._structure, rolled=rolled, max_nodes=max_nodes)

    def draw(self, path: str, *, rolled: bool = True, max_nodes: int = 400) -> str:
        """Write a picture to `path` (`.svg`, `.png`, `.pdf`, or `.dot` for the text).

        Without the program `dot` of graphviz the text is written beside it, as `.dot`.

        Args:
            path: Where to write; its ending says what.
            rolled: One node per layer instead of one per pass.
            max_nodes: Beyond so many nodes deep modules are folded into one node each.
        Returns: the path that was written.
        """
        return drawing.draw(self.to_dot(rolled=rolled, max_nodes=max_nodes), path)

    def captured(self) -> CapturedStep:
        """Graph and records as a sink takes them."""
        records = self._kept()
        moment = records[0].moment if records else Moment()
        return CapturedStep(moment=moment, records=records, graph=self.log)

    def _kept(self) -> list[Record]:
        """Records in order, each once."""
        return list({id(record): record for _, record in sorted(self._records.items())}.values())

    def _call(self, index: int) -> ModuleCall:
        return ModuleCall(self._structure, self._records, index)

    def _labels_of(self, kind: str) -> list[str]:
        structure = self._structure
        return [structure.labels[line] for line in structure.nodes if structure.lines[line].kind == kind]

    def _title(self) -> str:
        unknown = self.unknown_flops
        more = f" (unknown: {', '.join(unknown[:6])}{', ...' if len(unknown) > 6 else ''})" if unknown else ""
        return (
            f"{self.model_name}: {self.num_ops} ops in {self.num_layers} layers, "
            f"{self.num_params:,} parameters, {tables.with_prefix(self.total_flops_forward)} FLOPs{more}, "
            f"{self.num_saved_ops} tensors saved ({tables.with_prefix(self.saved_nbytes, 'B', 1024)})"
        )

    def __str__(self) -> str:
        return self.summary()

    def __repr__(self) -> str:
        # Bounded: counts only.
        ended = "" if self.outcome.status == "complete" else f", {self.outcome.status}: {self.outcome.reason}"
        return (
            f"<Trace of {self.model_name}: {self.num_ops} ops in {self.num_layers} layers, "
            f"{self.num_saved_ops} saved{ended}>"
        )


def build(log: GraphLog, records: Iterable[Record] = (), outcome: Outcome = Outcome()) -> Trace:
    """The trace of a logged forward with what was kept of it."""
    return Trace(Structure(log), by_line(log, records), outcome)
