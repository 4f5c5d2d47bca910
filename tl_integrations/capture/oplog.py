"""The full description of one forward as plain records: every tensor it knew and every module call.

A `GraphLog` holds all that a `Trace` needs and nothing that lives: no tensors, no modules, no frames. Its
lines are numbered by position. `lines` holds, in the order in which the forward met them, inputs, parameters,
buffers, constants and the results of ops, then the outputs; one line per tensor, so a call that returns
three has three lines. `modules` holds the module calls in the order in which they began; call 0 is the root.

Lines are named tuples, the one exception to dataclasses as records: a forward of 10,000 ops makes 10,000 of
them when it is traced, at 0.5 us each instead of 4 us for a frozen dataclass of as many fields.

`to_lines` and `from_lines` turn a log into plain dicts and back: bundles keep these as lines.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, NamedTuple, TypeAlias

import torch
from xxhash import xxh3_128_hexdigest

LineKind = Literal["input", "parameter", "buffer", "constant", "op", "output"]
KINDS: tuple[LineKind, ...] = ("input", "parameter", "buffer", "constant", "op", "output")


class Code(str):
    """An argument that is written as source text: a dtype, a device, a slice, or an object's bounded repr."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


TENSOR = Code("Tensor")
"""Stands in an op's arguments where a tensor was; `OpLine.reads` says which, in the same order."""


def is_tensor(value: object) -> bool:
    """Whether an argument stands for a tensor; a literal text of the same letters does not."""
    return value is TENSOR or (isinstance(value, Code) and value == TENSOR)


PlainValue: TypeAlias = "bool | int | float | str | Code | tuple[PlainValue, ...] | None"


class OpLine(NamedTuple):
    """One tensor of a forward: a source, one result of an op, or a leaf of the model's output."""

    kind: LineKind = "op"
    type: str = ""
    """Layer type as labels say it, such as `relu`; for other kinds than `op` the kind."""
    func_name: str = ""
    """The function's own name, such as `relu_` or `__add__`."""
    func: str = ""
    """Where the function lives, such as `torch.nn.functional.relu`."""
    reads: tuple[int, ...] = ()
    """Lines whose tensors the call read, in the order of its arguments; a tensor used twice stands twice."""
    call: int = 0
    """The module call around it: an index into `GraphLog.modules`."""
    shape: tuple[int, ...] = ()
    dtype: str = "float32"
    device: str = "cpu"
    requires_grad: bool = False
    first: int = -1
    """For one of several results of a call: the line of the first of them; else -1."""
    path: str = ""
    """Which leaf of the call's result, of the model's arguments or of its output, such as `["h"][0]`."""
    inplace: bool = False
    """The result is one of the arguments, written."""
    address: str = ""
    """Of a parameter or buffer: its name in the model. Of an input: the argument's name."""
    args: tuple[PlainValue, ...] = ()
    """Positional arguments, with `TENSOR` where a tensor was."""
    kwargs: tuple[tuple[str, PlainValue], ...] = ()
    seconds: float | None = None
    """Time of the call; the same for all its results, counted once."""
    file: str = ""
    line: int = 0
    """Where the user's code called it."""
    source: str = ""
    """That line of text, where it was asked for when capturing."""


class ModuleLine(NamedTuple):
    """One call of one module."""

    address: str = ""
    """Name in the model, `""` for the root. A module with several names has the first of them."""
    class_name: str = ""
    pass_index: int = 1
    """k-th call of this module within the forward, 1-based."""
    parent: int = -1
    """The module call around it; -1 for the root."""
    outputs: tuple[int, ...] = ()
    """Lines of the tensors it returned, leaf by leaf."""
    aliases: tuple[str, ...] = ()
    """Its other names."""
    training: bool = False
    seconds: float | None = None
    """Time of the call with everything inside; for the root, of the forward."""
    files: tuple[tuple[str, int, int], ...] = ()
    """Root only: every file that lines name, with its modification time in ns and its size at capture."""


@dataclass(frozen=True, kw_only=True)
class GraphLog:
    """One forward: every tensor it knew, every module call."""

    lines: tuple[OpLine, ...] = ()
    modules: tuple[ModuleLine, ...] = ()
    memo: dict[str, Any] = field(default_factory=dict, compare=False, repr=False)
    """What was worked out of these lines once, such as labels, for all who ask again."""

    @cached_property
    def graph_id(self) -> str:
        """Equal for forwards that differ in nothing but time: 32 hex digits."""
        untimed = [{k: v for k, v in line.items() if k != "seconds"} for line in self.to_lines()]
        return xxh3_128_hexdigest(json.dumps(untimed, separators=(",", ":")).encode())

    def to_lines(self) -> list[dict[str, Any]]:
        """The log as dicts that JSON can hold, each with `kind` and `index`; defaults are left out."""
        ops = [{"kind": "op", "index": i, **_plain_fields(line)} for i, line in enumerate(self.lines)]
        calls = [{"kind": "module", "index": i, **_plain_fields(c)} for i, c in enumerate(self.modules)]
        return ops + calls

    @classmethod
    def from_lines(cls, lines: Iterable[Mapping[str, Any]]) -> "GraphLog":
        """The log that `to_lines` wrote; keys that this version does not know are ignored.

        Raises:
            ValueError: if an index is missing or twice, a reference leads outside, or a type is wrong.
        """
        found: dict[str, dict[int, Mapping[str, Any]]] = {"op": {}, "module": {}}
        for line in lines:
            rows, index = found.get(line.get("kind", "")), line.get("index")
            if rows is None or not isinstance(index, int) or index in rows:
                raise ValueError(
                    f"Not a line of a graph, or an index that stands twice: {str(dict(line))[:120]}"
                )
            rows[index] = line
        ops = tuple(_read_op(row) for row in _in_order(found["op"]))
        calls = tuple(_read_module(row) for row in _in_order(found["module"]))
        _check_references(ops, calls)
        return cls(lines=ops, modules=calls)


_INTEGERS = frozenset({"reads", "shape", "outputs"})
_RENAMED = {"kind": "role"}


def _plain_fields(line: OpLine | ModuleLine) -> dict[str, Any]:
    defaults = line._field_defaults
    changed = [(n, v) for n, v in zip(line._fields, line, strict=True) if v != defaults[n]]
    return {_RENAMED.get(n, n): to_plain(v) for n, v in changed}


def to_plain(value: PlainValue) -> Any:
    """An argument as JSON can hold it: `Code` as `{"code": text}`, other than finite numbers as text."""
    if isinstance(value, tuple):
        return [to_plain(v) for v in value]
    if isinstance(value, Code):
        return {"code": str(value)}
    if isinstance(value, float) and (value != value or value in (float("inf"), float("-inf"))):
        return {"float": repr(value)}
    return value


def from_plain(value: Any) -> PlainValue:
    """The argument that `to_plain` wrote.

    Raises:
        ValueError: if it is nothing that `to_plain` writes.
    """
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list):
        return tuple(from_plain(v) for v in value)
    if isinstance(value, dict) and len(value) == 1:
        (key, text), *_ = value.items()
        if key == "code" and isinstance(text, str):
            return Code(text)
        if key == "float" and text in ("nan", "inf", "-inf"):
            return float(text)
    raise ValueError(f"Not a plain argument: {str(value)[:120]}")


def _in_order(rows: Mapping[int, Mapping[str, Any]]) -> Sequence[Mapping[str, Any]]:
    if rows.keys() != set(range(len(rows))):
        raise ValueError(f"{len(rows)} lines of a graph whose indices are not 0 to {len(rows) - 1}.")
    return [rows[i] for i in range(len(rows))]


def _read_fields(row: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = {}
    for name, default in defaults.items():
        key = _RENAMED.get(name, name)
        if key not in row:
            continue
        value = from_plain(row[key])
        if not _fits(name, value, default):
            raise ValueError(f"Field {key!r} of a graph's line has the value {str(row[key])[:120]}.")
        read[name] = value
    return read


def _fits(name: str, value: PlainValue, default: Any) -> bool:
    if name == "seconds":
        return value is None or (isinstance(value, int | float) and not isinstance(value, bool))
    if type(value) is not type(default):
        return False
    if not isinstance(value, tuple):
        return True
    if name == "kwargs":
        return all(isinstance(p, tuple) and len(p) == 2 and isinstance(p[0], str) for p in value)
    if name == "files":
        return all(isinstance(f, tuple) and list(map(type, f)) == [str, int, int] for f in value)
    if name == "aliases":
        return all(isinstance(v, str) for v in value)
    return name not in _INTEGERS or all(type(v) is int and v >= 0 for v in value)


def _read_op(row: Mapping[str, Any]) -> OpLine:
    read = _read_fields(row, OpLine._field_defaults)
    if read.get("kind", "op") not in KINDS:
        raise ValueError(f"A graph's line has the role {read['kind']!r}; known are {', '.join(KINDS)}.")
    if not isinstance(getattr(torch, read.get("dtype", "float32"), None), torch.dtype):
        raise ValueError(f"A graph's line has the dtype {read['dtype']!r}, which torch does not know.")
    return OpLine(**read)


def _read_module(row: Mapping[str, Any]) -> ModuleLine:
    return ModuleLine(**_read_fields(row, ModuleLine._field_defaults))


def _check_references(ops: Sequence[OpLine], calls: Sequence[ModuleLine]) -> None:
    for i, line in enumerate(ops):
        if any(r >= i for r in line.reads) or not 0 <= line.call < len(calls) or line.first > i:
            raise ValueError(f"Line {i} of a graph points to a line that is not before it.")
    for i, call in enumerate(calls):
        if not -1 <= call.parent < i or any(o >= len(ops) for o in call.outputs):
            raise ValueError(f"Module call {i} of a graph points outside of the graph.")
