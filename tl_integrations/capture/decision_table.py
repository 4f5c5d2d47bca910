"""What a selector says of each function, worked out once and kept between forwards."""

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from tl_integrations.capture.effects import effects_of
from tl_integrations.capture.labels import function_name, qualified_name, type_of
from tl_integrations.capture.selector import FunctionSubject, Selector
from tl_integrations.capture.selectors import Func, Where

_MOST_TABLES = 64


class Entry:
    """One function as the hot path needs it; plain attributes, since each is read at every call."""

    __slots__ = (
        "decision",
        "fresh",
        "func_name",
        "is_op",
        "qualified_name",
        "returns_target",
        "risky",
        "switch",
        "switch_position",
        "touches",
        "touches_from",
        "type",
        "wanted",
    )

    def __init__(self, func: Callable[..., Any], selector: Selector, every: bool) -> None:
        effects = effects_of(func)
        self.func_name: str = function_name(func)
        self.type: str = type_of(self.func_name)
        self.qualified_name: str = qualified_name(func)
        self.is_op: bool = effects.is_op
        self.touches: bool = effects.touches
        self.touches_from: int = effects.touches_from
        self.switch: str = effects.switch
        self.switch_position: int = effects.switch_position
        # `x[i] = y` returns nothing; its result is the tensor that it wrote.
        self.returns_target: bool = self.func_name == "__setitem__"
        self.risky: bool = effects.touches or effects.switch_position >= 0
        settled = selector.settle(FunctionSubject(self.func_name, self.type)) if self.is_op else False
        self.decision: Selector | bool = settled
        self.fresh: bool = effects.fresh and settled is True
        """Kept without asking, and on memory of its own unless the call writes into its first argument."""
        # A function that is not kept is still counted where another of its type is: labels number both.
        self.wanted: bool = settled is not False or (self.is_op and (every or _counts(selector, self.type)))


def _counts(selector: Selector, type_name: str) -> bool:
    return any(isinstance(part, Func) and type_of(part.name) == type_name for part in selector.parts())


class DecisionTable:
    """Entries of the functions that were met so far; `every` looks at all ops, whatever the selector says."""

    __slots__ = ("entries", "every", "selector")

    def __init__(self, selector: Selector, *, every: bool = False) -> None:
        self.selector: Selector = selector
        self.every: bool = every
        self.entries: dict[Callable[..., Any], Entry] = {}

    def learn(self, func: Callable[..., Any]) -> Entry:
        """The entry of a function that is met for the first time."""
        entry = self.entries[func] = Entry(func, self.selector, self.every)
        return entry


_TABLES: OrderedDict[Selector, DecisionTable] = OrderedDict()


def table_for(selector: Selector) -> DecisionTable:
    """The table of a bound selector.

    Tables are shared between recorders, except where a selector holds a user's function: keeping that alive
    could keep a model alive.
    """
    if any(isinstance(part, Where) for part in selector.parts()):
        return DecisionTable(selector)
    table = _TABLES.get(selector)
    if table is None:
        table = _TABLES[selector] = DecisionTable(selector)
        while len(_TABLES) > _MOST_TABLES:
            _TABLES.popitem(last=False)
    return table
