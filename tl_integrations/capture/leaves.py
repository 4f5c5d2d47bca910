"""The tensors inside a function's or module's result, each with the path that leads to it."""

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from torch import Tensor
from torch.nn import Parameter

_FLAT = frozenset({Tensor, Parameter, type(None)})


def tensor_leaves(value: Any) -> list[tuple[str, Tensor]]:
    """Every tensor in nested tuples, lists, mappings and dataclasses, in order.

    Paths are written as Python would index: `[0]`, `["h"][0]`, `.logits`; a bare tensor has the path `""`.
    A container that holds itself is entered once. Everything that is not a tensor is passed over.
    """
    if isinstance(value, Tensor):
        return [("", value)]
    kind = type(value)
    if (kind is tuple or kind is list) and all(type(item) in _FLAT for item in value):
        # The usual case, for which nothing below is needed.
        return [(f"[{index}]", item) for index, item in enumerate(value) if item is not None]
    found: list[tuple[str, Tensor]] = []
    # Iterative, because nesting may be deeper than the interpreter's stack; `open_ids` ends cycles.
    pending: list[tuple[str, Any, frozenset[int]]] = [("", value, frozenset())]
    while pending:
        path, item, open_ids = pending.pop()
        if isinstance(item, Tensor):
            found.append((path, item))
        elif id(item) not in open_ids:
            inner = open_ids | {id(item)}
            pending.extend((path + step, child, inner) for step, child in reversed(list(_children(item))))
    return found


def _children(value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        return ((f"[{_text(key)}]", child) for key, child in value.items())
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return ((f".{name}", getattr(value, name)) for name in value._fields)
    if isinstance(value, tuple | list):
        return ((f"[{index}]", child) for index, child in enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        return ((f".{field.name}", getattr(value, field.name, None)) for field in fields(value))
    return iter(())


def _text(key: Any) -> str:
    return f'"{key}"' if isinstance(key, str) else repr(key)
