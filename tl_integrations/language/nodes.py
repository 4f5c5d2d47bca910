"""What a recorded call is, and the guard that stands in for the object while tracing."""

import re
import sys
from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from os.path import basename
from types import CodeType
from typing import Any, NoReturn

from tl_integrations.errors import TraceNodeError
from tl_integrations.language.targets import Target

MARK = "<tl_integrations recorded call of "
MARKED = re.compile(re.escape(MARK) + r"[^>]*>")

Site = tuple[str, int]
"""A file and a line."""

Spot = tuple[CodeType, int]
"""The same until someone asks: Python counts lines from the top of a function, 12 us in one of 500 lines."""


def call_spot(depth: int) -> Spot:
    """Where the frame `depth` above the caller is; no frame object is kept."""
    frame = sys._getframe(depth + 1)
    code = frame.f_code
    if code.co_name == "__call__" and frame.f_back and frame.f_globals.get("__name__") == "typing":
        frame = frame.f_back
        code = frame.f_code
    return code, frame.f_lasti


def site_of(spot: Spot) -> Site:
    """File and line of a spot."""
    code, instruction = spot
    starts, lines = _lines(code)
    return code.co_filename, lines[bisect_right(starts, instruction) - 1]


@lru_cache(maxsize=32)
def _lines(code: CodeType) -> tuple[list[int], list[int]]:
    """Where the instructions of each line begin, and those lines; made once for all calls in a function."""
    table = [(start, line) for start, _, line in code.co_lines() if line is not None]
    return [start for start, _ in table], [line for _, line in table]


def place(site: Site | None) -> str:
    """`"models.py:41"` for a message."""
    return f"{basename(site[0])}:{site[1]}" if site else "an unknown place"


class Call:
    """One recorded call: a target and its encoded arguments. Identity means "the same object"."""

    __slots__ = ("args", "flat", "kwargs", "owner", "partial", "spot", "target")

    def __init__(
        self,
        target: Target,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        partial: bool = False,
    ) -> None:
        self.target: Target = target
        self.args: Sequence[Any] = args
        self.kwargs: dict[str, Any] = kwargs
        self.partial: bool = partial
        self.flat: bool = False
        """Whether it has nothing but named scalars, and so is its own plain form."""
        self.spot: Spot | None = None
        self.owner: object = None

    @property
    def site(self) -> Site | None:
        """Where it was recorded, if that is known."""
        return site_of(self.spot) if self.spot else None

    def __repr__(self) -> str:
        return f"{MARK}{self.target.label} at {place(self.site)}>"


class Tree:
    """A finished config that is put into another one: plain data, kept whole, shared by identity."""

    __slots__ = ("as_config", "content")

    def __init__(self, content: Any, *, as_config: bool = False) -> None:
        self.content: Any = content
        self.as_config: bool = as_config


class _Holder:
    """A node while its call is put in, which its own `__setattr__` would refuse."""

    __slots__ = ("__weakref__", "_tl_call")
    _tl_call: Call


class Node(_Holder):
    """The stand-in that a configurable call returns while tracing. Any use but passing it on is an error."""

    __slots__ = ()

    def __repr__(self) -> str:
        return repr(self._tl_call)

    def __format__(self, spec: str) -> str:
        return repr(self)

    def __getattr__(self, name: str) -> NoReturn:
        if name.startswith("__") and name.endswith("__"):
            raise AttributeError(name)
        refuse(self, f".{name}")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        if name == "__orig_class__":
            raise AttributeError(name)
        refuse(self, f"setting .{name}")

    def __delattr__(self, name: str) -> NoReturn:
        refuse(self, f"deleting .{name}")

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> NoReturn:
        node = next((value for value in (*args, *(kwargs or {}).values()) if type(value) is cls), None)
        refuse(node, f"{getattr(func, '__name__', func)}() of it")


def stand_in(call: Call) -> Node:
    """The node of a call; made without an `__init__`, which would take three times as long."""
    holder = _Holder()
    holder._tl_call = call
    holder.__class__ = Node
    return holder  # type: ignore[return-value]


def refuse(node: Node | None, what: str) -> NoReturn:
    """Raise the error for a node that was used as if it had been built."""
    call = node._tl_call if node is not None else None
    label, where = (call.target.label, place(call.site)) if call else ("an object", "an unknown place")
    raise TraceNodeError(
        f"{label!r} was recorded ({where}), not built, so {what} is not available while tracing. Pass the "
        "value in explicitly, decorate the function that needs the live object, or wrap this part in "
        "L.untraced()."
    )


def _refusal(operation: str) -> Any:
    def refused(self: Node, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(self, operation)

    return refused


_REFUSED = {
    "calling it": "call",
    "its truth value": "bool",
    "its length": "len",
    "iterating over it": "iter next reversed aiter anext contains",
    "indexing it": "getitem setitem delitem",
    "comparing it": "lt le gt ge",
    "arithmetic on it": "add radd iadd sub rsub isub mul rmul imul matmul rmatmul imatmul truediv rtruediv "
    "itruediv floordiv rfloordiv ifloordiv mod rmod imod divmod rdivmod pow rpow ipow lshift rlshift "
    "rshift rrshift and rand iand or ror ior xor rxor ixor neg pos abs invert round trunc floor ceil",
    "its numeric value": "int float complex index",
    "its path": "fspath",
    "its array": "array array_ufunc array_function",
    "awaiting it": "await",
    "entering it": "enter exit aenter aexit",
    "copying it": "copy deepcopy",
    "pickling it": "reduce reduce_ex getstate",
}
for _text, _names in _REFUSED.items():
    for _name in _names.split():
        setattr(Node, f"__{_name}__", _refusal(_text))
