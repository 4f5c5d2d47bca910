"""How values of the standard library are written: as calls that plain Hydra can make."""

import collections
import datetime
import decimal
import enum
import fractions
import pathlib
import re
import uuid
from typing import Any

from tl_integrations.language.canonical import canonical
from tl_integrations.language.encoding import (
    Encoded,
    Encoder,
    Opaque,
    Where,
    add_kind,
    add_recipe,
    pairs,
    refuse_relative,
)
from tl_integrations.language.recipes.references import reference, target_path
from tl_integrations.language.targets import trusted


def _sequence(target: str) -> Any:
    def recipe(value: Any, encoder: Encoder, where: Where) -> Encoded:
        return {
            "_target_": target,
            "_convert_": "all",
            "_args_": [refuse_relative(encoder.items(value, where), where)],
        }

    return recipe


def _set(target: str) -> Any:
    """Sets are written sorted, so that the same set gives the same text in every process."""

    def recipe(value: Any, encoder: Encoder, where: Where) -> Encoded:
        written = [encoder.value(item, (where, index)) for index, item in enumerate(value)]
        ordered = sorted(written, key=lambda item: (type(item).__name__, canonical(item)))
        return {"_target_": target, "_convert_": "all", "_args_": [refuse_relative(ordered, where)]}

    return recipe


def _from_text(target: str, text: Any = str) -> Any:
    def recipe(value: Any, encoder: Encoder, where: Where) -> Encoded:
        return {"_target_": target, "_args_": [encoder.text(text(value), where)]}

    return recipe


def _from_parts(target: str, *names: str) -> Any:
    def recipe(value: Any, encoder: Encoder, where: Where) -> Encoded:
        return encoder.call(target, [getattr(value, name) for name in names], {}, where)

    return recipe


def _deque(value: Any, encoder: Encoder, where: Where) -> Encoded:
    return {
        "_target_": "collections.deque",
        "_convert_": "all",
        "_args_": [encoder.items(value, where), value.maxlen],
    }


def _ordered(value: Any, encoder: Encoder, where: Where) -> Encoded:
    return {
        "_target_": "collections.OrderedDict",
        "_convert_": "all",
        "_args_": [pairs(value, encoder, where)],
    }


def _counter(value: Any, encoder: Encoder, where: Where) -> Encoded:
    return {
        "_target_": "collections.Counter",
        "_convert_": "all",
        "_args_": [
            {"_target_": "builtins.dict", "_convert_": "all", "_args_": [pairs(value, encoder, where)]}
        ],
    }


def _defaultdict(value: Any, encoder: Encoder, where: Where) -> Encoded:
    factory = (
        None
        if value.default_factory is None
        else encoder.value(value.default_factory, (where, "default_factory"))
    )
    return {
        "_target_": "collections.defaultdict",
        "_convert_": "all",
        "_args_": [factory, pairs(value, encoder, where)],
    }


def _pattern(value: Any, encoder: Encoder, where: Where) -> Encoded:
    text = encoder.value(value.pattern, where)
    default = re.UNICODE if isinstance(value.pattern, str) else 0
    flags = int(value.flags)
    return {"_target_": "re.compile", "_args_": [text] if flags == default else [text, flags]}


def _moment(kind: str) -> Any:
    def recipe(value: Any, encoder: Encoder, where: Where) -> Encoded:
        if getattr(value, "tzinfo", None) is not None and not isinstance(value.tzinfo, datetime.timezone):
            raise Opaque("its time zone is not a fixed offset")
        if getattr(value, "fold", 0):
            raise Opaque("its fold has no text form")
        return {"_target_": f"datetime.{kind}.fromisoformat", "_args_": [value.isoformat()]}

    return recipe


def _timezone(value: datetime.timezone, encoder: Encoder, where: Where) -> Encoded:
    offset, name = value.utcoffset(None), value.tzname(None)
    args = [offset] if datetime.timezone(offset).tzname(None) == name else [offset, name]
    return encoder.call("datetime.timezone", args, {}, where)


def _uuid(value: uuid.UUID, encoder: Encoder, where: Where) -> Encoded:
    return {"_target_": "uuid.UUID", "_args_": [str(value)]}


def _path(value: pathlib.PurePath, encoder: Encoder, where: Where) -> Encoded:
    """A concrete path is written without its system, so that it loads on another one."""
    name = "Path" if isinstance(value, pathlib.Path) else type(value).__name__
    if getattr(pathlib, name, None) is None or type(value) not in (
        pathlib.PosixPath,
        pathlib.WindowsPath,
        getattr(pathlib, name),
    ):
        raise Opaque("it is a path class of its own")
    text = value.as_posix() if name == "Path" else str(value)
    return {"_target_": f"pathlib.{name}", "_args_": [encoder.text(text, where)]}


def _enum(kind: type) -> Any:
    return _member if issubclass(kind, enum.Enum) else None


def _member(value: enum.Enum, encoder: Encoder, where: Where) -> Encoded:
    """By name, which keeps identity; a combination of flags, which has none, by value."""
    kind = type(value)
    path = target_path(kind)
    if value.name is not None and kind.__members__.get(value.name) is value:
        trusted.add(f"{path}.{value.name}")
        return reference(f"{path}.{value.name}")
    return {"_target_": path, "_args_": [encoder.value(value.value, where)]}


def _ellipsis(value: Any, encoder: Encoder, where: Where) -> Encoded:
    return reference("builtins.Ellipsis" if value is ... else "builtins.NotImplemented")


def _range(value: range, encoder: Encoder, where: Where) -> Encoded:
    return {"_target_": "builtins.range", "_args_": [value.start, value.stop, value.step]}


add_kind(_enum)
add_recipe(tuple, _sequence("builtins.tuple"))
add_recipe(set, _set("builtins.set"))
add_recipe(frozenset, _set("builtins.frozenset"))
add_recipe(collections.deque, _deque)
add_recipe(collections.OrderedDict, _ordered)
add_recipe(collections.Counter, _counter)
add_recipe(collections.defaultdict, _defaultdict)
add_recipe(
    bytearray, lambda value, encoder, where: {"_target_": "builtins.bytearray", "_args_": [bytes(value)]}
)
add_recipe(range, _range)
add_recipe(slice, _from_parts("builtins.slice", "start", "stop", "step"))
add_recipe(complex, _from_parts("builtins.complex", "real", "imag"))
add_recipe(decimal.Decimal, _from_text("decimal.Decimal"))
add_recipe(fractions.Fraction, _from_parts("fractions.Fraction", "numerator", "denominator"))
add_recipe(datetime.date, _moment("date"))
add_recipe(datetime.datetime, _moment("datetime"))
add_recipe(datetime.time, _moment("time"))
add_recipe(datetime.timedelta, _from_parts("datetime.timedelta", "days", "seconds", "microseconds"))
add_recipe(datetime.timezone, _timezone)
add_recipe(uuid.UUID, _uuid)
add_recipe(re.Pattern, _pattern)
add_recipe(pathlib.PurePath, _path, subclasses=True)
add_recipe(type(...), _ellipsis)
add_recipe(type(NotImplemented), _ellipsis)
