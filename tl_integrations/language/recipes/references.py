"""Classes, functions and modules as values: by the path that imports them."""

import functools
import types
from typing import Any

from tl_integrations.errors import TraceError
from tl_integrations.language.encoding import Encoded, Encoder, Opaque, Where, add_kind, add_recipe
from tl_integrations.language.paths import import_path
from tl_integrations.language.targets import refuse_denied, target_of, trusted


def target_path(value: Any) -> str:
    """Import path of an object that a config will name, checked against what no config may name."""
    own = getattr(value, "_tl_target", None)
    if own is not None and not isinstance(value, type):
        return str(own.path)
    path = import_path(value)
    refuse_denied(path, value)
    trusted.add(path)
    return path


def reference(path: str) -> dict[str, Any]:
    """The node that gives the object itself instead of calling it."""
    return {"_target_": "hydra.utils.get_object", "path": path}


def by_path(value: Any, encoder: Encoder, where: Where) -> Encoded:
    """The recipe for anything importable."""
    return reference(target_path(value))


def _module(value: types.ModuleType, encoder: Encoder, where: Where) -> Encoded:
    return reference(target_path(value))


def _partial(value: functools.partial[Any], encoder: Encoder, where: Where) -> Encoded:
    if type(value) is not functools.partial and type(value).__name__ != "_DeferredTarget":
        raise Opaque("it is a partial class of its own")
    target = target_of(value.func)
    node = encoder.call(target.path, value.args, value.keywords, where)
    return {"_target_": node.pop("_target_"), "_partial_": True, **node}


def _generic(value: Any, encoder: Encoder, where: Where) -> Encoded:
    raise Opaque(
        "a subscripted type has no import path; give it a name at module level and pass it from a function"
    )


def _is_class(kind: type) -> Any:
    return by_path if issubclass(kind, type) else None


def _is_ufunc(kind: type) -> Any:
    return by_path if (kind.__module__, kind.__name__) == ("numpy", "ufunc") else None


def _bound(value: Any, encoder: Encoder, where: Where) -> Encoded:
    if isinstance(getattr(value, "__self__", None), (type, types.ModuleType)):
        return by_path(value, encoder, where)
    try:
        return by_path(value, encoder, where)
    except TraceError as error:
        raise Opaque(str(error).rstrip(".")) from None


add_kind(_is_class)
add_kind(_is_ufunc)
add_recipe(types.BuiltinFunctionType, by_path)
add_recipe(types.MethodType, by_path)
add_recipe(types.MethodDescriptorType, _bound)
add_recipe(types.WrapperDescriptorType, _bound)
add_recipe(types.ClassMethodDescriptorType, _bound)
add_recipe(types.MethodWrapperType, _bound)
add_recipe(types.ModuleType, _module, subclasses=True)
add_recipe(functools.partial, _partial, subclasses=True)
add_recipe(types.GenericAlias, _generic)
