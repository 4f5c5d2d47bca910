"""The config of a live object, told from the record that its construction left."""

import weakref
from collections.abc import Iterator
from typing import Any

from tl_integrations.errors import NoConfigError
from tl_integrations.language import keeping
from tl_integrations.language.canonical import canonical
from tl_integrations.language.defaults import DefaultsMode
from tl_integrations.language.keeping import is_module, record_of
from tl_integrations.language.lowering import lower, to_config
from tl_integrations.language.nodes import Call, Tree
from tl_integrations.language.records import Record, plain
from tl_integrations.language.remembering import live_value
from tl_integrations.language.targets import named_target

_MOST_HELD = 256
"""Containers of a module that are looked into for modules that torch does not see."""


def config_of(obj: Any, *, defaults: DefaultsMode = "omit", as_dict: bool = False) -> Any:
    """The config of a live object that a configurable built, by whatever code.

    Args:
        obj: An object built by a decorated class or function, by `L.wrap`ped code or by `L.instantiate`.
        defaults: As in `trace`.
        as_dict: Give a plain dict instead of a DictConfig.
    Raises: NoConfigError when nothing was recorded, an argument could not be written, or a part was replaced
        since.
    """
    lowered = lower(call_of(obj), defaults=defaults)
    return lowered.content if as_dict else to_config(lowered)


def call_of(obj: Any) -> Call:
    """The call that built a live object. Raises NoConfigError as `config_of`."""
    record = record_of(obj)
    if record is None:
        raise NoConfigError(_unknown_text(obj))
    reading = _Reading(obj)
    reading.stale += _changed_fields(obj, record)
    try:
        root = reading.call(record, ())
    except RecursionError:
        raise NoConfigError(f"This {type(obj).__name__} is nested too deeply for a config.") from None
    reading.report()
    assert isinstance(root, Call)
    return root


class _Reading:
    """One reading of a record: rebuilds the calls, shares what was one object, collects what is missing."""

    def __init__(self, obj: Any) -> None:
        self.obj = obj
        self.alive = _tokens_in(obj) if is_module(obj) else None
        self.opaque: list[str] = []
        self.stale: list[str] = []
        self._calls: dict[int, Call] = {}

    def call(self, record: Record, path: tuple[Any, ...]) -> Any:
        note = record["_record_"]
        token = note["token"]
        if token in self._calls:
            return self._calls[token]
        if record["_target_"] is None:
            self.opaque.append(f"{_dotted(path)}: {record['_opaque_']} ({record['reason']})")
            return None
        kwargs = {k: v for k, v in record.items() if k not in ("_target_", "_record_", "_args_")}
        call = Call(named_target(record["_target_"]), [], {})
        call.args = [self.value(v, (*path, i)) for i, v in enumerate(record.get("_args_", []))]
        call.kwargs = {name: self.value(value, (*path, name)) for name, value in kwargs.items()}
        call.kwargs = _in_order(call)
        self._calls[token] = call
        return call

    def value(self, value: Any, path: tuple[Any, ...]) -> Any:
        if type(value) is list:
            return [self.value(item, (*path, index)) for index, item in enumerate(value)]
        if type(value) is not dict:
            return value
        if "_record_" in value:
            self._check_alive(value, path)
            return self.call(value, path)
        if value.get("_target_", "") is None:
            if "_tree_" in value:
                return Tree(value["_tree_"], as_config=value["as_config"])
            self.opaque.append(f"{_dotted(path)}: {value['_opaque_']} ({value['reason']})")
            return None
        return {key: self.value(item, (*path, key)) for key, item in value.items()}

    def _check_alive(self, record: Record, path: tuple[Any, ...]) -> None:
        if self.alive is None or not record["_record_"].get("module"):
            return
        if record["_record_"]["token"] not in self.alive:
            self.stale.append(_dotted(path))

    def report(self) -> None:
        name = type(self.obj).__name__
        if self.stale:
            raise NoConfigError(
                f"The record of this {name} is stale: {', '.join(self.stale)} was replaced or removed after "
                "it was built. Build it again with the new part as an argument."
            )
        if self.opaque:
            raise NoConfigError(
                f"Parts of this {name} have no config: {'; '.join(self.opaque)}. Decorate what builds them "
                "with L.configurable, or teach their type with L.register_encoder."
            )


def _in_order(call: Call) -> dict[str, Any]:
    """Keyword arguments in the order of the signature, as a trace writes them."""
    given = call.kwargs
    ordered = {name: given[name] for name in call.target.plan.names if name in given}
    return {**ordered, **given}


def _tokens_in(module: Any) -> set[int]:
    """Tokens of every module that is held by `module`, also in lists and dicts of its own."""
    found: set[int] = set()
    for part in module.modules():
        for held in (part, *_hidden(part)):
            record = record_of(held)
            if record is not None:
                found.add(record["_record_"]["token"])
    return found


def _hidden(module: Any) -> Iterator[Any]:
    """Modules that a module holds in plain lists, tuples and dicts, where torch does not see them."""
    waiting: list[Any] = [value for value in vars(module).values() if isinstance(value, list | tuple | dict)]
    for _ in range(_MOST_HELD):
        if not waiting:
            return
        value = waiting.pop()
        if is_module(value):
            yield from value.modules()
        elif isinstance(value, dict):
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)


def _changed_fields(obj: Any, record: Record) -> list[str]:
    """Fields of a dataclass that no longer are what it was given; one that computes fields itself is not
    asked."""
    if is_module(obj) or not hasattr(type(obj), "__dataclass_fields__") or hasattr(obj, "__post_init__"):
        return []
    given = [name for name in type(obj).__dataclass_fields__ if name in record]
    now = {name: plain(live_value(getattr(obj, name, None))) for name in given}
    return [name for name in given if canonical(now[name]) != canonical(record[name])]


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path)) or "the object itself"


def _unknown_text(obj: Any) -> str:
    kind = type(obj)
    text = f"Nothing is known of how this {kind.__module__}.{kind.__qualname__} was built"
    if not keeping.enabled:
        return f"{text}: recording is off (TL_INTEGRATIONS_RECORD=0)."
    try:
        weakref.ref(obj)
    except TypeError:
        return f"{text}: its type cannot be weakly referenced, so no record can be kept beside it."
    if "_tl_target" in kind.__dict__:
        return f"{text}: it is a copy or was unpickled, and only nn.Modules take their record along."
    base = next((base.__name__ for base in kind.__mro__[1:] if "_tl_target" in base.__dict__), None)
    if base:
        return f"{text}: only its base {base} is configurable. Decorate it too."
    return (
        f"{text}. Decorate its class or the function that builds it with L.configurable, wrap it with "
        "L.wrap, or build it with L.instantiate."
    )
