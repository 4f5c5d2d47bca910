"""A traced graph as tables: a summary for the terminal, a pandas frame, a networkx graph."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from io import StringIO
from math import prod
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from tl_integrations.capture.flops import cost
from tl_integrations.capture.ops import Op
from tl_integrations.capture.structure import Structure

if TYPE_CHECKING:
    import networkx
    import pandas

_WIDTH = 110
_MAX_ROWS = 200


@dataclass(slots=True)
class _Row:
    """What a module's ops add up to."""

    class_name: str
    calls: int = 0
    shape: tuple[int, ...] | None = None
    parameters: set[int] = field(default_factory=set)
    flops: int = 0
    unknown: bool = False
    nbytes: int = 0
    seconds: float = 0.0


def summary(structure: Structure, title: str) -> str:
    """One line per module that was called: output shape, parameters, FLOPs, memory, time, with all below it.

    A `+` behind FLOPs says that some op has no known formula.
    """
    rows = _rows(structure)
    table = Table(title=title, title_justify="left", show_footer=False)
    table.add_column("module", overflow="fold")
    for name in ("class", "calls", "output", "parameters", "FLOPs", "memory", "time"):
        table.add_column(name, justify="left" if name in ("class", "output") else "right")
    for address, row in list(rows.items())[:_MAX_ROWS]:
        table.add_row(*_cells(address, row, structure))
    if len(rows) > _MAX_ROWS:
        table.add_row(f"... and {len(rows) - _MAX_ROWS} more modules")
    text = StringIO()
    Console(file=text, width=_WIDTH, color_system=None).print(table)
    return text.getvalue().rstrip()


def _cells(address: str, row: _Row, structure: Structure) -> tuple[str, ...]:
    depth = address.count(".") + 1 if address else 0
    count = sum(prod(structure.lines[p].shape) for p in row.parameters)
    return (
        "  " * depth + (address.rpartition(".")[2] or "(root)"),
        row.class_name,
        str(row.calls),
        "x".join(map(str, row.shape)) if row.shape else ("()" if row.shape == () else ""),
        f"{count:,}" if count else "",
        with_prefix(row.flops) + ("+" if row.unknown else ""),
        with_prefix(row.nbytes, "B", 1024),
        f"{row.seconds * 1e3:.2f} ms",
    )


def _rows(structure: Structure) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    around: list[tuple[str, ...]] = []
    for index, call in enumerate(structure.log.modules):
        row = rows.setdefault(call.address, _Row(call.class_name))
        row.calls += 1
        outputs = call.outputs if index else structure.returned
        row.shape = structure.lines[outputs[0]].shape if outputs else row.shape
        around.append((*(around[call.parent] if call.parent >= 0 else ()), call.address))
    for line in structure.ops:
        _add(
            structure, line, [rows[address] for address in dict.fromkeys(around[structure.lines[line].call])]
        )
    if "" in rows:
        parameters = (i for i, line in enumerate(structure.lines) if line.kind == "parameter")
        rows[""].parameters.update(parameters)
    return rows


def _add(structure: Structure, line: int, rows: Iterable[_Row]) -> None:
    op = structure.lines[line]
    flops = cost(op, structure.lines).flops
    nbytes = Op(structure, {}, line).nbytes
    counted = op.first < 0 or op.first == line
    for row in rows:
        row.parameters.update(structure.parameters(line))
        row.flops += flops or 0
        row.unknown |= flops is None
        row.nbytes += nbytes
        row.seconds += (op.seconds or 0.0) if counted else 0.0


def with_prefix(value: float, unit: str = "", base: int = 1000) -> str:
    """A number with k, M, G or T: `2.08 k`."""
    for prefix in ("", "k", "M", "G"):
        if abs(value) < base:
            return f"{value:.4g} {prefix}{unit}".rstrip()
        value /= base
    return f"{value:.4g} T{unit}"


def to_pandas(ops: Iterable[Op]) -> "pandas.DataFrame":
    """One row per op."""
    try:
        import pandas
    except ImportError as error:
        raise ImportError("`to_pandas` needs pandas: pip install pandas") from error
    return pandas.DataFrame([_facts(op) for op in ops])


def _facts(op: Op) -> Mapping[str, object]:
    return {
        "label": op.label,
        "layer_label": op.layer_label,
        "pass_index": op.pass_index,
        "kind": op.kind,
        "type": op.type,
        "func_name": op.func_name,
        "address": op.address,
        "modules": op.modules,
        "parents": op.parents,
        "children": op.children,
        "parameters": op.parameters,
        "num_params": op.num_params,
        "shape": op.shape,
        "dtype": str(op.dtype).removeprefix("torch."),
        "nbytes": op.nbytes,
        "flops_forward": op.flops_forward,
        "macs_forward": op.macs_forward,
        "seconds": op.seconds,
        "saved": op.has_saved_activation,
    }


def to_networkx(structure: Structure, ops: Iterable[Op], *, rolled: bool) -> "networkx.MultiDiGraph[str]":
    """Nodes by label with their facts as attributes; an edge for every read."""
    try:
        import networkx
    except ImportError as error:
        raise ImportError("`to_networkx` needs networkx: pip install networkx") from error
    graph: networkx.MultiDiGraph[str] = networkx.MultiDiGraph()
    for op in ops:
        name = op.layer_label if rolled else op.label
        if name not in graph:
            graph.add_node(
                name, **{k: v for k, v in _facts(op).items() if k not in ("label", "parents", "children")}
            )
        parents = structure.parents(op.line)
        named = [structure.labels[p] if rolled else structure.name(p) for p in parents]
        graph.add_edges_from((parent, name) for parent in named)
    return graph
