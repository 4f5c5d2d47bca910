"""From the raw tuples of a forward to the plain `GraphLog`."""

import gc
import linecache
import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

import torch
from torch import Tensor

from tl_integrations.capture.calls import CallLog
from tl_integrations.capture.module_tree import ModuleTree
from tl_integrations.capture.oplog import GraphLog, ModuleLine, OpLine
from tl_integrations.capture.places import STAMPS, line_of
from tl_integrations.capture.raw_log import RawLog


def build_graph(raw: RawLog, calls: CallLog, seconds: float | None, *, source_text: bool) -> GraphLog:
    """The log of a forward that has ended.

    Args:
        raw: What the handler appended.
        calls: The module calls.
        seconds: Time of the whole forward.
        source_text: Keep the text of each call's line.
    """
    with _collection_paused():
        lines = [_source_line(row) if isinstance(row[0], str) else _op_line(row) for row in raw.lines]
        used = {line.address for line in lines if line.kind == "parameter"}
        lines += _unused_parameters(calls.tree, used)
        lines += [_output_line(*output) for output in raw.outputs]
        if source_text:
            lines = [line._replace(source=_source_text(line.file, line.line)) for line in lines]
        modules = [_module_line(raw, calls, call) for call in range(len(calls.calls))]
        modules[0] = modules[0]._replace(seconds=seconds, files=_file_stamps(lines))
    return GraphLog(lines=tuple(lines), modules=tuple(modules))


def _source_line(row: tuple[Any, ...]) -> OpLine:
    kind, name, path, call, shape, dtype, device, requires_grad = row
    kept = (tuple(shape), _dtype(dtype), _device(device), requires_grad)
    return OpLine(kind, kind, "", "", (), call, *kept, -1, path, False, name)


def _op_line(row: tuple[Any, ...]) -> OpLine:
    entry, call, reads, meta, literals, named, seconds, place, first, path, inplace = row
    shape, dtype, device, requires_grad = meta
    # By position, which takes half the time of twenty keywords; the order is that of the fields.
    return OpLine(
        "op",
        entry.type,
        entry.func_name,
        entry.qualified_name,
        tuple(reads),
        call,
        tuple(shape),
        _dtype(dtype),
        _device(device),
        requires_grad,
        first,
        path,
        bool(inplace),
        "",
        tuple(literals),
        tuple(named.items()) if named else (),
        seconds,
        *line_of(place),
    )


def _output_line(path: str, made: int, meta: tuple[Any, ...]) -> OpLine:
    shape, dtype, device, requires_grad = meta
    return OpLine(
        kind="output",
        type="output",
        reads=(made,),
        shape=tuple(shape),
        dtype=_dtype(dtype),
        device=_device(device),
        requires_grad=requires_grad,
        path=path,
    )


def named_tensors(tree: ModuleTree) -> dict[int, tuple[str, str, Tensor]]:
    """Kind, name and tensor of every parameter and buffer of a model, by id; each under its first name.

    It walks the modules that the tree has found already: `named_parameters` would find them anew, which takes
    ten times as long.
    """
    found: dict[int, tuple[str, str, Tensor]] = {}
    for node in tree.nodes:
        module = node.ref()
        if module is None:
            continue
        prefix = f"{node.address}." if node.address else ""
        for kind, held in (("parameter", module._parameters), ("buffer", module._buffers)):
            for name, tensor in held.items():
                if tensor is not None:
                    found.setdefault(id(tensor), (kind, prefix + name, tensor))
    return found


def _unused_parameters(tree: ModuleTree, used: set[str]) -> list[OpLine]:
    """Parameters that no op read: they count as the model's."""
    unused = []
    seen: set[int] = set()
    for node in tree.nodes:
        module = node.ref()
        prefix = f"{node.address}." if node.address else ""
        for name, p in module._parameters.items() if module is not None else ():
            if p is None or id(p) in seen:
                continue
            seen.add(id(p))
            if prefix + name not in used:
                row = ("parameter", prefix + name, "", 0, p.shape, p.dtype, p.device, p.requires_grad)
                unused.append(_source_line(row))
    return unused


def _module_line(raw: RawLog, calls: CallLog, call: int) -> ModuleLine:
    node_index, parent = calls.calls[call]
    node = calls.tree.nodes[node_index]
    module = node.ref()
    return ModuleLine(
        address=node.address,
        class_name=node.class_name,
        pass_index=calls.pass_of(call),
        parent=parent,
        outputs=raw.call_outputs.get(call, ()),
        aliases=tuple(node.addresses[1:]),
        training=module is not None and module.training,
    )


def _file_stamps(lines: list[OpLine]) -> tuple[tuple[str, int, int], ...]:
    """(path, modification time in ns, size) of each file that a line names, as it was when first met."""
    files = dict.fromkeys(line.file for line in lines if line.file)
    return tuple((file, *stamp) for file in files if (stamp := STAMPS.get(file)) is not None)


def _source_text(file: str, number: int) -> str:
    """The line of a source file, if the file is still as it was when its code was first met."""
    stamp = STAMPS.get(file)
    try:
        stat = os.stat(file)
    except OSError:
        return ""
    unchanged = stamp == (stat.st_mtime_ns, stat.st_size)
    return linecache.getline(file, number).strip() if unchanged else ""


@contextmanager
def _collection_paused() -> Iterator[None]:
    # Ten thousand tuples in a row set off the garbage collector again and again: 11 us per op instead of 1.7.
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


@cache
def _dtype(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


@cache
def _device(device: torch.device) -> str:
    return str(device)
