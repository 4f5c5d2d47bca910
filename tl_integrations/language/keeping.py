"""Where the record of a live object's construction is kept: in an nn.Module, or beside any other object."""

import enum
import os
import sys
import types
import weakref
from collections.abc import Sequence
from typing import Any

from tl_integrations.language.records import Fresh, Record, tokens, written
from tl_integrations.language.targets import Target

KEY = "_tl_config"
"""The one entry in an nn.Module's `__dict__`; copied and pickled with it, absent from its state dict."""

enabled: bool = os.environ.get("TL_INTEGRATIONS_RECORD", "1") != "0"

_NEVER, _BESIDE, _MODULE, _FUNCTION = range(4)
_MOST_TYPES = 1024
_ways: dict[type, int] = {}
_beside: dict[int, "_Ref"] = {}
_SCALARS = (int, float, complex, str, bytes, bytearray, type, types.ModuleType, enum.Enum)


class _Ref(weakref.ref[Any]):
    """A weak reference to an object, with its record."""

    __slots__ = ("key", "record")
    key: int
    record: Record | Fresh


def _forget(ref: Any) -> None:
    key: int = ref.key
    if _beside.get(key) is ref:
        del _beside[key]


def is_module(value: object) -> bool:
    """Whether `value` is an nn.Module, without importing torch."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(value, torch.nn.Module)


def keep(value: Any, target: Target, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Keep the record of a call for the object it gave, if that is a thing of its own.

    Args:
        value: The object. Scalars, tensors, arrays, classes, importable functions and what cannot be weakly
            referenced are never kept.
        target: What was called.
        args: Its arguments as plain data, which nobody changes any more.
        kwargs: The named ones likewise.
    """
    if _ways.get(type(value)) == _BESIDE and id(value) not in _beside:  # runs at every construction
        _keep_beside(value, _new_tuple(Fresh, (target, next(tokens), args, kwargs)))
        return
    way = _way(value)
    if way == _NEVER:
        return
    fresh = Fresh(target, next(tokens), args, kwargs)
    record = written(fresh, record_of(value), module=way == _MODULE)
    if way == _MODULE:
        value.__dict__[KEY] = record
    else:
        _keep_beside(value, record)


_new_tuple: Any = tuple.__new__


def _keep_beside(value: Any, record: Record | Fresh) -> None:
    ref = _Ref(value, _forget)
    ref.key = key = id(value)
    ref.record = record
    _beside[key] = ref


def kept(value: Any) -> Record | Fresh | None:
    """The record of a live object in the form in which it is kept, or None."""
    ref = _beside.get(id(value))
    if ref is not None:
        return ref.record if ref() is value else None
    return value.__dict__.get(KEY) if _way(value) == _MODULE else None


def record_of(value: Any) -> Record | None:
    """The record of a live object, or None."""
    record = kept(value)
    if isinstance(record, Fresh):
        _beside[id(value)].record = record = written(record)
    return record


def _way(value: Any) -> int:
    """How a record is kept for `value`; worked out once per type, and for functions each time."""
    kind = type(value)
    way = _ways.get(kind)
    if way is None:
        if len(_ways) >= _MOST_TYPES:
            _ways.clear()
        way = _ways[kind] = _way_of(kind)
    if way == _FUNCTION:
        return _BESIDE if "<locals>" in getattr(value, "__qualname__", "") else _NEVER
    return way


def _way_of(kind: type) -> int:
    if issubclass(kind, _SCALARS) or kind.__weakrefoffset__ == 0:
        return _FUNCTION if kind is types.FunctionType else _NEVER
    if kind in (types.FunctionType, types.BuiltinFunctionType, types.MethodType):
        return _FUNCTION
    torch, numpy = sys.modules.get("torch"), sys.modules.get("numpy")
    if torch is not None and issubclass(kind, torch.nn.Module):
        return _MODULE
    if torch is not None and issubclass(kind, torch.Tensor):
        return _NEVER
    return _NEVER if numpy is not None and issubclass(kind, numpy.ndarray) else _BESIDE
