"""Where the record of a live object's construction is kept: in an nn.Module, or beside any other object.

A record is plain data: the config of the call with a `_record_` entry in each object's node. It holds no
object alive.
"""

import enum
import os
import sys
import types
import weakref
from itertools import count
from typing import Any

Record = dict[str, Any]

KEY = "_tl_config"
"""The one entry in an nn.Module's `__dict__`; copied and pickled with it, absent from its state dict."""

enabled = os.environ.get("TL_INTEGRATIONS_RECORD", "1") != "0"

NEVER, BESIDE, MODULE, _FUNCTION = range(4)
_MOST_TYPES = 1024
_keeping: dict[type, int] = {}

tokens = count(int.from_bytes(os.urandom(6), "big") << 12)
"""Numbers that name one construction each, unique across processes in practice."""

_beside: dict[int, tuple["_Ref", Record]] = {}
_SCALARS = (int, float, complex, str, bytes, bytearray, type, types.ModuleType, enum.Enum)


class _Ref(weakref.ref[Any]):
    """A weak reference that knows where its record lies."""

    __slots__ = ("key",)
    key: int


def _forget(ref: Any) -> None:
    entry = _beside.get(ref.key)
    if entry is not None and entry[0] is ref:
        del _beside[ref.key]


def is_module(value: object) -> bool:
    """Whether `value` is an nn.Module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def is_compiling() -> bool:
    """Whether torch.compile is reading this code, which must then hold nothing that breaks its graph."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()


def keeping(value: object) -> int:
    """How a record is kept for `value`: `NEVER`, `BESIDE` it or in its `MODULE` dict; worked out once per
    type.

    Never for scalars, tensors, arrays, classes, importable functions and what cannot be weakly referenced.
    """
    kind = type(value)
    found = _keeping.get(kind)
    if found is None:
        if len(_keeping) >= _MOST_TYPES:
            _keeping.clear()
        found = _keeping[kind] = _how_to_keep(kind)
    if found == _FUNCTION:
        return BESIDE if "<locals>" in getattr(value, "__qualname__", "") else NEVER
    return found


def _how_to_keep(kind: type) -> int:
    if issubclass(kind, _SCALARS) or kind.__weakrefoffset__ == 0:
        return _FUNCTION if kind is types.FunctionType else NEVER
    if kind in (types.FunctionType, types.BuiltinFunctionType, types.MethodType):
        return _FUNCTION
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and issubclass(kind, torch.nn.Module):
        return MODULE
    if torch is not None and issubclass(kind, torch.Tensor):
        return NEVER
    return NEVER if numpy is not None and issubclass(kind, numpy.ndarray) else BESIDE


def attach(value: Any, record: Record, how: int) -> None:
    """Keep `record` for `value`, in the way that `keeping` told."""
    if how == MODULE:
        value.__dict__[KEY] = record
        return
    ref = _Ref(value, _forget)
    ref.key = key = id(value)
    _beside[key] = (ref, record)


def kept(value: Any) -> tuple[int, Record | None]:
    """How a record is kept for a live object, and the one it has."""
    how = _keeping.get(type(value), _FUNCTION)
    if how == _FUNCTION:
        how = keeping(value)
    if how == MODULE:
        return how, value.__dict__.get(KEY)
    entry = _beside.get(id(value)) if how == BESIDE else None
    return how, entry[1] if entry is not None and entry[0]() is value else None


def record_of(value: Any) -> Record | None:
    """The record of a live object, or None."""
    return kept(value)[1]
