"""Which ops of a traced graph a selector takes: the selectors of `save=`, asked after the forward."""

import weakref
from collections import deque
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn

from tl_integrations.capture.events import Event
from tl_integrations.capture.module_tree import ModuleTree, Node
from tl_integrations.capture.oplog import GraphLog, OpLine
from tl_integrations.capture.selector_text import as_selector
from tl_integrations.capture.structure import Structure


def selected_lines(structure: Structure, selector: Any, *, lookback: int) -> list[int]:
    """Lines of the ops that a selector takes, in order; a module's output counts as the op that made it.

    Raises:
        SelectorError: if the selector can be answered only while a forward runs (`followed_by`).
        UnknownNameError: if it names nothing of this graph.
    """
    bound = as_selector(selector).bind(_tree(structure.log))
    taken = {line for line, event in _events(structure, lookback) if bound(event)}
    return [node for node in structure.nodes if node in taken]


def _events(structure: Structure, lookback: int) -> Iterator[tuple[int, Event]]:
    recent: deque[Event] = deque(maxlen=lookback)
    for line in structure.nodes:
        op = structure.lines[line]
        if op.kind == "output":
            continue
        event = _event(structure, line, op, tuple(recent))
        yield line, event
        if op.kind == "op":
            recent.append(event)
    for index, call in enumerate(structure.log.modules):
        for line in call.outputs if index else structure.returned:
            yield line, _module_event(structure, index, line)


def _event(structure: Structure, line: int, op: OpLine, recent: tuple[Event, ...]) -> Event:
    call = structure.log.modules[op.call]
    return Event(
        kind="op" if op.kind == "op" else "input" if op.kind == "input" else "buffer",
        func_name=op.func_name,
        type=op.type,
        label=structure.raw_label_of[line].rsplit("_", 2)[0],
        final_label=f"{structure.labels[line]}:{structure.passes[line]}",
        address=call.address,
        module_type=call.class_name,
        modules=structure.stacks[op.call],
        pass_index=call.pass_index,
        path=op.path,
        output_index=max(line - op.first, 0) if op.first >= 0 else 0,
        shape=op.shape,
        dtype=getattr(torch, op.dtype),
        device=op.device,
        requires_grad=op.requires_grad,
        recent_ops=recent,
    )


def _module_event(structure: Structure, index: int, line: int) -> Event:
    call, op = structure.log.modules[index], structure.lines[line]
    return Event(
        kind="module",
        func_name=call.class_name,
        final_label="",
        address=call.address,
        module_type=call.class_name,
        modules=structure.stacks[index],
        pass_index=call.pass_index,
        path=op.path,
        shape=op.shape,
        dtype=getattr(torch, op.dtype),
        device=op.device,
        requires_grad=op.requires_grad,
    )


def _tree(log: GraphLog) -> ModuleTree:
    """The called modules by name, as selectors look them up; the modules themselves may be gone."""
    stand_in = nn.Module()
    tree = ModuleTree(stand_in)
    tree.nodes, tree.by_address = [], {}
    for call in log.modules:
        if call.address in tree.by_address:
            continue
        names = [call.address, *call.aliases]
        node = Node(weakref.ref(stand_in), len(tree.nodes), call.class_name, names)
        tree.nodes.append(node)
        tree.by_address.update(dict.fromkeys(names, node))
    return tree
