"""Instances of dataclasses, attrs classes and namedtuples: a call of the class with the fields it takes."""

import dataclasses
from typing import Any

from tl_integrations.language.encoding import Encoded, Encoder, Opaque, Where, add_kind
from tl_integrations.language.recipes.references import target_path


def _namedtuple(value: Any, encoder: Encoder, where: Where) -> Encoded:
    fields = {name: getattr(value, name) for name in value._fields}
    return encoder.call(target_path(type(value)), [], fields, where)


def _dataclass(value: Any, encoder: Encoder, where: Where) -> Encoded:
    kind = type(value)
    specs = dataclasses.fields(kind)
    given = {spec.name: getattr(value, spec.name) for spec in specs if spec.init}
    taken = {
        name
        for name, kind_ in getattr(kind, "__dataclass_fields__", {}).items()
        if kind_._field_type is _INIT_VAR
    }
    if taken:
        raise Opaque(f"{min(taken)!r} was only for its __init__ and is not kept")
    derived = [spec.name for spec in specs if not spec.init]
    if derived or hasattr(kind, "__post_init__"):
        _check_rebuilds(value, given, [spec.name for spec in specs])
    return encoder.call(target_path(kind), [], given, where)


_INIT_VAR = dataclasses._FIELD_INITVAR  # type: ignore[attr-defined]


def _check_rebuilds(value: Any, given: dict[str, Any], names: list[str]) -> None:
    try:
        again = type(value)(**given)
        same = all(_equal(getattr(again, name), getattr(value, name)) for name in names)
    except Exception as error:
        raise Opaque(f"building it again from its fields fails ({type(error).__name__}: {error})") from None
    if not same:
        raise Opaque("building it again from its fields gives something else")


def _equal(a: Any, b: Any) -> bool:
    try:
        return a is b or bool(a == b) or (a != a and b != b)
    except Exception:
        return False


def _attrs(value: Any, encoder: Encoder, where: Where) -> Encoded:
    specs = type(value).__attrs_attrs__
    given = {spec.alias or spec.name.lstrip("_"): getattr(value, spec.name) for spec in specs if spec.init}
    if any(not spec.init for spec in specs) or hasattr(type(value), "__attrs_post_init__"):
        _check_rebuilds(value, given, [spec.name for spec in specs])
    return encoder.call(target_path(type(value)), [], given, where)


def _record(kind: type) -> Any:
    if any(base.__module__ == "torch.nn.modules.module" for base in kind.__mro__):
        return None
    if "__dataclass_fields__" in _attributes(kind) and "__init__" in _attributes(kind):
        return _dataclass
    if "__attrs_attrs__" in kind.__dict__:
        return _attrs
    if issubclass(kind, tuple) and kind is not tuple and isinstance(getattr(kind, "_fields", None), tuple):
        return _namedtuple if hasattr(kind, "_field_defaults") else None
    return None


def _attributes(kind: type) -> dict[str, Any]:
    """The class's own attributes: a subclass of a dataclass that adds an `__init__` of its own is not one."""
    own = kind.__dict__
    params = own.get("__dataclass_params__")
    return dict(own) if params is not None and params.init else {}


add_kind(_record)
