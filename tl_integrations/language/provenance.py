"""How a live object was built: remembered while it is built by ordinary code, told by `config_of`."""

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tl_integrations.errors import NoConfigError, TLError
from tl_integrations.language import records
from tl_integrations.language.binding import bind
from tl_integrations.language.canonical import canonical
from tl_integrations.language.defaults import DefaultsMode
from tl_integrations.language.encoding import EXACT, Encoded, Encoder, Where
from tl_integrations.language.literals import literal, needs_escape
from tl_integrations.language.lowering import lower, to_config
from tl_integrations.language.nodes import Call, Tree
from tl_integrations.language.records import (
    MODULE,
    NEVER,
    Record,
    attach,
    is_compiling,
    is_module,
    kept,
    record_of,
    tokens,
)
from tl_integrations.language.targets import Target, named_target

_LEAVES = 256
_BYTES = 16 * 1024
_IMMUTABLE = frozenset({type(None), bool, int, float})
_VIA = 4
_PASSES = 8


class _TooLarge(Exception):
    pass


class _LiveEncoder(Encoder):
    """Encodes the arguments of a real call: never raises, never keeps an object, gives up on large values."""

    def __init__(self) -> None:
        super().__init__()
        self.leaves = _LEAVES
        self.room = _BYTES

    def value(self, value: Any, where: Where) -> Encoded:
        kind = type(value)
        self.leaves -= 1 + (len(value) if kind in (list, dict, tuple, set, frozenset) else 0)
        if kind is str or kind is bytes:
            self.room -= len(value)
        if self.leaves < 0 or self.room < 0:
            raise _TooLarge
        if kind is str:
            return literal(value) if needs_escape(value) else value
        if kind in EXACT:
            return value
        known = record_of(value)
        if known is not None and not _has_value_recipe(value):
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


def _has_value_recipe(value: Any) -> bool:
    """Records of dataclasses give way to their fields, which may have changed since."""
    return hasattr(type(value), "__dataclass_fields__") and not is_module(value)


def opaque(value: Any, reason: str) -> Record:
    """The mark of an argument that cannot be written down."""
    kind = type(value)
    return {"_target_": None, "_opaque_": f"{kind.__module__}.{kind.__qualname__}", "reason": reason}


def live_value(value: Any) -> Encoded:
    """One argument of a real call as plain data."""
    if type(value) is str and len(value) < _BYTES:
        return literal(value) if needs_escape(value) else value
    try:
        return _LiveEncoder().value(value, "argument")
    except _TooLarge:
        return opaque(value, f"larger than {_LEAVES} leaves or {_BYTES // 1024} KiB")


def snapshot(args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Sequence[Any], dict[str, Any]]:
    """Arguments as plain data, before the builder can change them; the same ones where none can be changed."""
    for value in (*args, *kwargs.values()):
        kind = type(value)
        if kind not in _IMMUTABLE and (kind is not str or not value.isalnum() or len(value) > _BYTES):
            return list(map(live_value, args)), {name: live_value(value) for name, value in kwargs.items()}
    return args, kwargs


def remember(target: Target, value: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
    """Attach the record of a call to the object it gave, if that is a thing of its own.

    The outermost builder wins; inner ones are kept as `via`. Runs at every construction, so the common case,
    a call of a known shape that gave something new, comes first.
    """
    how, earlier = kept(value)
    if how == NEVER:
        return
    path, plan = target.live_path, target.plan
    if earlier is None and path is not None and (len(args), *kwargs) in plan.shapes:
        named = bind(plan, args, kwargs)[1]
        record: Record = {"_target_": path, "_record_": {"token": next(tokens), "module": how == MODULE}, **named}
    else:
        record = _full_record(target, earlier, how, args, kwargs)
    attach(value, record, how)


def _full_record(
    target: Target, earlier: Record | None, how: int, args: Sequence[Any], kwargs: dict[str, Any]
) -> Record:
    """The record where something is out of the ordinary: another record, no path, no name for an argument."""
    path = target.live_path
    note: Record = {"token": next(tokens)} if earlier is None else _passed_on(earlier, path)
    note["module"] = how == MODULE
    reason = note.pop("reason", None)
    if path is None:
        reason = reason or f"{target.label!r} cannot be imported by name"
    try:
        positional, named = bind(target.plan, tuple(args), kwargs, star=True)
    except TypeError as error:
        positional, named, reason = (), {}, reason or str(error)
    if reason:
        return {"_target_": None, "_record_": note, "_opaque_": target.label, "reason": reason}
    record: Record = {"_target_": path, "_record_": note, **named}
    if positional:
        record["_args_"] = list(positional)
    return record


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


def build(target: Target, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a builder for real and remember how; what it gives may be a thing that has no record."""
    if is_compiling():
        return function(*args, **kwargs)
    plain_args, plain_kwargs = snapshot(args, kwargs)
    value = function(*args, **kwargs)
    remember(target, value, plain_args, plain_kwargs)
    return value


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
    root = reading.call(record, ())
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
                f"it was built. "
                "Build it again with the new part as an argument."
            )
        if self.opaque:
            raise NoConfigError(
                f"Parts of this {name} have no config: {'; '.join(self.opaque)}. Decorate what builds them "
                f"with "
                "L.configurable, or teach their type with L.register_encoder."
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
    for _ in range(_LEAVES):
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
    return [
        name for name in given if canonical(live_value(getattr(obj, name, None))) != canonical(record[name])
    ]


def _dotted(path: tuple[Any, ...]) -> str:
    return ".".join(map(str, path)) or "the object itself"


def _unknown_text(obj: Any) -> str:
    kind = type(obj)
    text = f"Nothing is known of how this {kind.__module__}.{kind.__qualname__} was built"
    if not records.enabled:
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
        f"L.wrap, "
        "or build it with L.instantiate."
    )
