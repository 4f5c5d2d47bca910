"""What is remembered of a construction: the config of the call, with a `_record_` entry in each node.

A record is plain data and holds no object alive. One that nobody has asked for yet is kept as it came.
"""

import os
from collections.abc import Sequence
from itertools import count
from typing import Any, NamedTuple

from tl_integrations.language.binding import bind
from tl_integrations.language.encoding import EXACT
from tl_integrations.language.targets import Target

Record = dict[str, Any]

_VIA = 4
_PASSES = 8

tokens: "count[int]" = count(int.from_bytes(os.urandom(6), "big") << 12)
"""Numbers that name one construction each, unique across processes in practice."""


class Fresh(NamedTuple):
    """A construction that was not written down yet: naming its arguments would double what it costs."""

    target: Target
    """What was called."""
    token: int
    """The number of this construction."""
    args: Sequence[Any]
    """Positional arguments as plain data, with fresh ones among them."""
    kwargs: dict[str, Any]
    """Named ones likewise."""

    def __repr__(self) -> str:
        return f"{self.target.live_path}#{self.token}"


def written(fresh: Fresh, earlier: Record | None = None, *, module: bool = False) -> Record:
    """The record of a construction.

    Args:
        fresh: What is known of it.
        earlier: The record that its result already had: the outermost builder wins, inner ones go to `via`.
        module: Whether it gave an nn.Module, which can be looked for in its parent later.
    """
    target, path = fresh.target, fresh.target.live_path
    note: Record = {"token": fresh.token} if earlier is None else _passed_on(earlier, path)
    note["module"] = module
    reason = note.pop("reason", None)
    if path is None:
        reason = reason or f"{target.label!r} cannot be imported by name"
    try:
        positional, named = bind(target.plan, tuple(fresh.args), fresh.kwargs, star=True)
    except TypeError as error:
        positional, named, reason = (), {}, reason or str(error)
    if reason:
        return {"_target_": None, "_record_": note, "_opaque_": target.label, "reason": reason}
    record: Record = {"_target_": path, "_record_": note}
    for name, value in named.items():
        record[name] = value if type(value) in EXACT else plain(value)
    if positional:
        record["_args_"] = plain(list(positional))
    return record


def plain(value: Any) -> Any:
    """An argument with all its fresh records written down."""
    kind = type(value)
    if kind is Fresh:
        try:
            return written(value)
        except RecursionError:
            return {"_target_": None, "_opaque_": value.target.label, "reason": "it is nested too deeply"}
    if kind is list:
        return [item if type(item) in EXACT else plain(item) for item in value]
    if kind is dict and "_record_" not in value:
        return {key: plain(item) for key, item in value.items()}
    return value


def opaque(value: Any, reason: str) -> Record:
    """The mark of an argument that cannot be written down."""
    kind = type(value)
    return {"_target_": None, "_opaque_": f"{kind.__module__}.{kind.__qualname__}", "reason": reason}


def _passed_on(earlier: Record, path: str | None) -> Record:
    note: Record = {"token": earlier["_record_"]["token"], "via": _via(earlier, path)}
    note["passes"] = earlier["_record_"].get("passes", 0) + 1
    if note["passes"] > _PASSES:
        note["reason"] = f"it went through builders more than {_PASSES} times"
    return note


def _via(earlier: Record, path: str | None) -> Any:
    chain = [{k: v for k, v in earlier.items() if k != "_record_"}, *earlier["_record_"].get("via", [])]
    same = earlier["_target_"] == path
    return chain[1:] if same else chain[:_VIA]
