"""From what a run caught to records: names, passes, statistics."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields
from operator import attrgetter
from typing import Any

from tl_integrations.capture.calls import CallPath
from tl_integrations.capture.catch import Catch
from tl_integrations.capture.events import Event, Record
from tl_integrations.capture.labels import type_of
from tl_integrations.capture.run import Run

_TENSORS = ("payload", "gradient")
_KEPT = tuple(field.name for field in fields(Record) if field.name not in _TENSORS)
_kept_of: Any = attrgetter(*_KEPT)
_SETTERS: list[Any] = [Record.__dict__[name].__set__ for name in (*_KEPT, *_TENSORS)]


def make_records(
    run: Run,
    catches: Sequence[Catch],
    *,
    labels: Sequence[str] | None = None,
    raw_labels: Sequence[str] | None = None,
    passes: Sequence[int] | None = None,
    forced_eager: bool = False,
    counted: bool = True,
) -> list[Record]:
    """The records of a run that has ended, in capture order.

    Args:
        run: The run.
        catches: What was kept of it.
        labels: Final label of each line of its graph, where one was logged.
        raw_labels: Label in flight of each line.
        passes: Pass of each line's layer.
        forced_eager: A compiled model ran eagerly.
        counted: Every op was seen, so that short labels are right.
    """
    paths = [run.calls.path(caught.call) for caught in catches]
    layers = _layer_names(catches, paths)
    made = []
    for caught, path, layer in zip(catches, paths, layers, strict=True):
        found, line = caught.numbers, caught.line
        if caught.kind == "module" or line is None or labels is None or raw_labels is None or passes is None:
            label = raw_label = None
            pass_index = path.pass_index
            short_label = caught.short_label if counted and caught.kind != "module" else None
        else:
            label, raw_label, pass_index = labels[line], raw_labels[line], passes[line]
            short_label = raw_label.rsplit("_", 2)[0]
        made.append(
            Record(
                moment=run.moment,
                run_index=run.run_index,
                kind=caught.kind,
                label=label,
                raw_label=raw_label,
                short_label=short_label,
                pass_index=pass_index,
                func_name=caught.func_name,
                address=path.node.address,
                modules=path.modules,
                path=caught.path,
                io=caught.io,
                layer=layer,
                line=line,
                shape=tuple(caught.shape),
                dtype=caught.dtype,
                device=str(caught.device),
                requires_grad=caught.requires_grad,
                forced_eager=forced_eager,
                statistics=found[0] if found is not None else None,
                histogram=found[1] if found is not None else None,
                payload=caught.payload,
                gradient=caught.gradient.gradient if caught.gradient is not None else None,
                placement=caught.placement,
            )
        )
    return made


def without_tensors(record: Record) -> Record:
    """The same record without payload and gradient."""
    # Of every captured step all records are remembered so: `dataclasses.replace` takes 16 us for one, this 3.
    made = object.__new__(Record)
    for put, value in zip(_SETTERS, (*_kept_of(record), None, None)):
        put(made, value)
    return made


def event_of(record: Record) -> Event:
    """What a selector would have seen of a record's tensor."""
    label = record.label
    return Event(
        kind=record.kind,
        func_name=record.func_name,
        type=type_of(record.func_name) if record.kind == "op" else "",
        label=record.short_label or "",
        final_label=None if label is None else f"{label}:{record.pass_index}",
        address=record.address,
        modules=record.modules,
        pass_index=record.pass_index,
        path=record.path,
        io="input" if record.io == "input" else "output",
        shape=record.shape,
        dtype=record.dtype,
        device=record.device,
        requires_grad=record.requires_grad,
        run_index=record.run_index,
        moment=record.moment,
    )


def _layer_names(catches: Sequence[Catch], paths: Sequence[CallPath]) -> list[str]:
    """A name for each catch: its module call, and its op where that call has several."""
    plain = [_module_name(caught, path) for caught, path in zip(catches, paths, strict=True)]
    shared = Counter(plain)
    names = [
        name if name and shared[name] == 1 else _op_name(name, caught, position)
        for position, (name, caught) in enumerate(zip(plain, catches))
    ]
    seen: Counter[str] = Counter()
    for position, name in enumerate(names):
        seen[name] += 1
        if seen[name] > 1:
            names[position] = f"{name}#{seen[name]}"
    return names


def _module_name(caught: Catch, path: CallPath) -> str:
    if caught.kind in ("input", "buffer"):
        return caught.path
    repeat = f":{path.pass_index}" if path.pass_index > 1 else ""
    given = ".input" if caught.io == "input" else ""
    address = path.node.address or ("root" if caught.kind == "module" else "")
    return f"{address}{repeat}{given}{caught.path}"


def _op_name(name: str, caught: Catch, position: int) -> str:
    if caught.kind == "module":
        return name
    op = caught.short_label or f"{caught.func_name}_{position + 1}"
    return f"{name}.{op}" if name else op
