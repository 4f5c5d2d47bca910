"""A traced graph as a picture: DOT text, and graphviz where it is installed."""

import shutil
import subprocess
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tl_integrations.capture.structure import Structure
from tl_integrations.errors import CaptureError

_COLORS = {"input": "#98fb98", "output": "#ff9999", "buffer": "#d3d3d3", "constant": "#d3d3d3"}
_TEXT_SUFFIXES = (".dot", ".gv")


@dataclass(frozen=True, slots=True)
class _Node:
    """A box of the picture."""

    name: str
    text: str
    color: str
    folder: tuple[str, ...]
    """Modules around it, outermost first."""
    folded: bool = False
    """It stands for a module with everything inside."""


def to_dot(structure: Structure, *, rolled: bool, max_nodes: int) -> str:
    """The graph in the DOT language.

    Modules are clusters. A graph of more than `max_nodes` boxes is folded from the deepest modules up, until
    it fits; what does not fit even then is cut off and counted.
    """
    depth = max((len(stack) for stack in structure.stacks), default=0)
    boxes = _boxes(structure, depth, rolled)
    while len(set(boxes.values())) > max_nodes and depth > 0:
        depth -= 1
        boxes = _boxes(structure, depth, rolled)
    nodes = {node.name: node for node in boxes.values()}
    shown = dict(list(nodes.items())[:max_nodes])
    lines = [
        "digraph trace {",
        '  rankdir=TB; node [shape=box, style="rounded,filled", fillcolor=white];',
        *_clusters(list(shown.values()), (), 1),
        *_edges(structure, boxes, shown),
    ]
    if len(nodes) > len(shown):
        lines.append(f"  {_quoted('more')} [label={_quoted(f'... and {len(nodes) - len(shown)} more')}];")
    return "\n".join([*lines, "}", ""])


def draw(text: str, path: str) -> str:
    """Write DOT text to `path`, as a picture when its suffix is no `.dot` and graphviz is installed.

    Returns: the path that was written: without graphviz the text lies beside it as `.dot`.
    Raises:
        CaptureError: if graphviz refuses, with what it says.
    """
    target = Path(path)
    program = shutil.which("dot")
    if target.suffix in _TEXT_SUFFIXES or program is None:
        target = target if target.suffix in _TEXT_SUFFIXES else target.with_suffix(".dot")
        target.write_text(text, encoding="utf-8")
        return str(target)
    command = [program, f"-T{target.suffix[1:] or 'svg'}", "-o", str(target)]
    run = subprocess.run(command, input=text.encode(), capture_output=True)
    if run.returncode:
        raise CaptureError(
            f"graphviz could not write {path!r}: {run.stderr.decode(errors='replace').strip()[:300]} "
            "Use a suffix that it knows (.svg, .png, .pdf), or .dot for the text."
        )
    return str(target)


def _boxes(structure: Structure, depth: int, rolled: bool) -> dict[int, _Node]:
    """For every node of the graph the box it is drawn as, with modules below `depth` folded."""
    boxes: dict[int, _Node] = {}
    folded: dict[tuple[str, ...], _Node] = {}
    names = [stack if not rolled else _addresses(stack) for stack in structure.stacks]
    for line in structure.nodes:
        op = structure.lines[line]
        stack = names[op.call] if op.kind in ("op", "buffer", "constant") and names else ()
        if len(stack) > depth:
            inner = stack[: depth + 1]
            boxes[line] = folded.setdefault(inner, _folded(structure, inner))
        else:
            boxes[line] = _box(structure, line, rolled, stack)
    return boxes


def _addresses(stack: Sequence[str]) -> tuple[str, ...]:
    return tuple([call.rpartition(":")[0] for call in stack])


def _folded(structure: Structure, stack: tuple[str, ...]) -> _Node:
    address = stack[-1].partition(":")[0]
    calls = structure.calls_at[address]
    return _Node(
        name=f"module {'/'.join(stack)}",
        text=f"{stack[-1]}\n{structure.log.modules[calls[0]].class_name}",
        color="#e6e6fa",
        folder=stack[:-1],
        folded=True,
    )


def _box(structure: Structure, line: int, rolled: bool, stack: tuple[str, ...]) -> _Node:
    label = structure.labels[line] if rolled else structure.name(line)
    op = structure.lines[structure.members[structure.labels[line]][0] if rolled else line]
    passes = len(structure.members[structure.labels[line]])
    title = f"{label} x{passes}" if rolled and passes > 1 else label
    size = "x".join(map(str, op.shape)) or "scalar"
    parameters = f"\n{', '.join(structure.lines[p].address for p in structure.parameters(line)[:3])}"
    text = f"{title}\n{size}{parameters if parameters.strip() else ''}"
    return _Node(name=label, text=text, color=_COLORS.get(op.kind, "white"), folder=stack)


def _clusters(nodes: Sequence[_Node], folder: tuple[str, ...], level: int) -> list[str]:
    pad = "  " * level
    inner: dict[str, list[_Node]] = defaultdict(list)
    lines: list[str] = []
    for node in nodes:
        if len(node.folder) > len(folder):
            inner[node.folder[len(folder)]].append(node)
        else:
            shape = ", shape=box3d" if node.folded else ""
            look = f"label={_quoted(node.text)}, fillcolor={_quoted(node.color)}{shape}"
            lines.append(f"{pad}{_quoted(node.name)} [{look}];")
    for name, held in inner.items():
        path = (*folder, name)
        lines += [
            f"{pad}subgraph {_quoted('cluster ' + '/'.join(path))} {{",
            f"{pad}  label={_quoted(name)}; style=rounded; color=gray;",
            *_clusters(held, path, level + 1),
            f"{pad}}}",
        ]
    return lines


def _edges(structure: Structure, boxes: dict[int, _Node], shown: dict[str, _Node]) -> list[str]:
    edges: dict[tuple[str, str], None] = {}
    for line in structure.nodes:
        for parent in structure.parents(line):
            a, b = boxes[parent], boxes[line]
            if a.name in shown and b.name in shown and not (a == b and a.folded):
                edges[a.name, b.name] = None
    return [f"  {_quoted(a)} -> {_quoted(b)};" for a, b in edges]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'
