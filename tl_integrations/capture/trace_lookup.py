"""Which op or layer of a traced graph a key names."""

from typing import NoReturn

from tl_integrations.capture.layers import Layer
from tl_integrations.capture.modules import ModuleCall
from tl_integrations.capture.ops import Op, Records
from tl_integrations.capture.structure import Structure
from tl_integrations.errors import AmbiguousRecordError, RecordLookupError, near_names


def find(structure: Structure, records: Records, key: str) -> Op | Layer:
    """What `key` names: a label, a label with `:k`, a short or raw label, or a module with or without `:k`.

    A label gives the layer, a module the op that made its output; `:k` names one pass or call.

    Raises:
        AmbiguousRecordError: if it names several, with their names.
        RecordLookupError: if it names none, with near names.
    """
    base, _, suffix = key.rpartition(":")
    if base and suffix.isdecimal():
        return _one_pass(structure, records, key, base, int(suffix))
    label = structure.short_labels.get(key, key)
    if label in structure.members:
        return Layer(structure, records, label)
    if key in structure.raw_labels:
        return Op(structure, records, structure.raw_labels[key])
    address = _address(structure, key)
    if address is not None:
        return _output_of(structure, records, key, address)
    return _part_of_a_label(structure, records, key)


def _one_pass(structure: Structure, records: Records, key: str, base: str, k: int) -> Op:
    label = structure.short_labels.get(base, base)
    lines = structure.members.get(label)
    if lines is not None:
        if not 1 <= k <= len(lines):
            _refuse(key, f"Layer {label!r} has {_count(len(lines), 'pass', 'passes')}.")
        return Op(structure, records, lines[k - 1])
    address = _address(structure, base)
    if address is None:
        _unknown(structure, key, base)
    calls = structure.calls_at[address]
    if not 1 <= k <= len(calls):
        _refuse(key, f"Module {address!r} was called {_count(len(calls), 'time', 'times')}.")
    return _only_output(structure, records, key, calls[k - 1])


def _output_of(structure: Structure, records: Records, key: str, address: str) -> Op:
    calls = structure.calls_at[address]
    if len(calls) > 1:
        names = ", ".join(repr(f"{key}:{k}") for k in range(1, min(len(calls), 4) + 1))
        raise AmbiguousRecordError(
            f"Module {key!r} was called {len(calls)} times. Name one call: {names}, ..."
        )
    return _only_output(structure, records, key, calls[0])


def _only_output(structure: Structure, records: Records, key: str, index: int) -> Op:
    outputs = ModuleCall(structure, records, index).outputs
    if len(outputs) == 1:
        return outputs[0]
    if not outputs:
        _refuse(key, f"Module {key!r} returned no tensor that the forward knew.")
    names = ", ".join(op.label for op in outputs[:5])
    raise AmbiguousRecordError(
        f"Module {key!r} returned {len(outputs)} tensors: {names}. Name one by its label."
    )


def _address(structure: Structure, name: str) -> str | None:
    if name == "self":
        return ""
    if name in structure.calls_at:
        return name
    parts = {address for address in structure.calls_at if address.rpartition(".")[2] == name}
    return parts.pop() if len(parts) == 1 and name else None


def _part_of_a_label(structure: Structure, records: Records, key: str) -> Layer:
    found = [label for label in structure.members if key and key in label]
    if len(found) == 1:
        return Layer(structure, records, found[0])
    if not found:
        _unknown(structure, key, key)
    shown = ", ".join(found[:8]) + (", ..." if len(found) > 8 else "")
    raise AmbiguousRecordError(f"{key!r} is part of {len(found)} labels: {shown}. Use one of them.")


def _unknown(structure: Structure, key: str, base: str) -> NoReturn:
    near = near_names(base, (*structure.members, *structure.calls_at))
    _refuse(key, f"{near}`trace.layer_labels` and `trace.modules` list what there is.")


def _refuse(key: str, reason: str) -> NoReturn:
    raise RecordLookupError(f"No op, layer or module call is named {key!r}. {reason}")


def _count(count: int, one: str, many: str) -> str:
    return f"{count} {one if count == 1 else many}"
