"""Remembering how ordinary code builds things: arguments as plain data before, the record after."""

import sys
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any

from tl_integrations.errors import TLError
from tl_integrations.language.encoding import EXACT, Encoded, Encoder, Where
from tl_integrations.language.keeping import is_module, keep, kept
from tl_integrations.language.literals import literal, needs_escape
from tl_integrations.language.nodes import Tree
from tl_integrations.language.records import opaque
from tl_integrations.language.targets import Target

_LEAVES = 256
_BYTES = 16 * 1024
_IMMUTABLE = frozenset({type(None), bool, int, float})
_CONTAINERS = frozenset({list, dict, tuple, set, frozenset})


class _TooLarge(Exception):
    pass


class _LiveEncoder(Encoder):
    """Encodes the arguments of a real call: never raises, never keeps an object, gives up on large values."""

    def __init__(self) -> None:
        super().__init__()
        self.leaves = _LEAVES
        self.room = _BYTES

    def value(self, value: Any, where: Where) -> Encoded:
        kind: Any = type(value)
        self.leaves -= 1 + (len(value) if kind in _CONTAINERS else 0)
        if kind is str or kind is bytes:
            self.room -= len(value)
        if self.leaves < 0 or self.room < 0:
            raise _TooLarge
        if kind is str:
            return literal(value) if needs_escape(value) else value
        if kind in EXACT:
            return value
        known = kept(value)
        if known is not None and not _is_told_by_fields(kind):
            return known
        if is_module(value):
            return opaque(value, "it was built by code that is not configurable")
        return self._recipe(value, where)

    def _recipe(self, value: Any, where: Where) -> Encoded:
        try:
            encoded = super().value(value, where)
        except _TooLarge:
            raise
        except TLError as error:
            return opaque(value, str(error))
        except Exception as error:
            return opaque(value, f"writing it failed with {type(error).__name__}")
        if type(encoded) is Tree:
            return {"_target_": None, "_tree_": encoded.content, "as_config": encoded.as_config}
        return encoded


@lru_cache(maxsize=1024)
def _is_told_by_fields(kind: type) -> bool:
    """Records of dataclasses give way to their fields, which may have changed since; modules keep theirs."""
    named = (base.__module__ == "torch.nn.modules.module" for base in kind.__mro__)
    return hasattr(kind, "__dataclass_fields__") and not any(named)


def live_value(value: Any) -> Encoded:
    """One argument of a real call as plain data."""
    if type(value) is str and len(value) < _BYTES:
        return literal(value) if needs_escape(value) else value
    try:
        return _LiveEncoder().value(value, "argument")
    except _TooLarge:
        return opaque(value, f"larger than {_LEAVES} leaves or {_BYTES // 1024} KiB")


def snapshot(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Arguments as plain data, before the builder can change them; the same ones where it cannot."""
    for value in (*args, *kwargs.values()):
        kind = type(value)
        if kind not in _IMMUTABLE and (kind is not str or not value.isalnum() or len(value) > _BYTES):
            return list(map(live_value, args)), {name: live_value(value) for name, value in kwargs.items()}
    return args, kwargs


def build(target: Target, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a builder for real and remember how; what it gives may be a thing that has no record."""
    if is_compiling():
        return function(*args, **kwargs)
    plain_args, plain_kwargs = snapshot(args, kwargs)
    value = function(*args, **kwargs)
    keep(value, target, plain_args, plain_kwargs)
    return value


def is_compiling() -> bool:
    """Whether torch.compile is reading this code, which must then hold nothing that breaks its graph."""
    torch = sys.modules.get("torch")
    return torch is not None and torch.compiler.is_dynamo_compiling()
