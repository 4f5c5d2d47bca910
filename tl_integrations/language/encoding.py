"""An argument -> plain data and nodes, tier by tier: node, scalar, container, value with a recipe, opaque.

An encoded value is a scalar, a list or dict of encoded values, a `Call` or `Tree`. A dict with the key
`_target_` is a finished recipe; a dict of the user's that has such a key is written as pairs instead, so the
two cannot be confused.
"""

import sys
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any, NoReturn

from tl_integrations.errors import TraceError, TraceNodeError
from tl_integrations.language.binding import RESERVED
from tl_integrations.language.literals import literal, needs_escape
from tl_integrations.language.markers import Missing, Reference
from tl_integrations.language.nodes import MARKED, Call, Node, Tree, place

Encoded = Any
Where = Any
"""Linked path of an argument: `(outer Where, key)`, the outermost a label; formatted only for an error."""

Recipe = Callable[[Any, "Encoder", Where], Encoded]
"""How a type of values is written. Raises Opaque when this value is beyond it."""

EXACT = frozenset({type(None), bool, int, float, bytes})
_PLAIN_KEYS = frozenset({str, int, float, bool, bytes})
_LATE = {
    "torch": "tl_integrations.language.recipes.torch",
    "numpy": "tl_integrations.language.recipes.numpy",
    "omegaconf": "tl_integrations.language.recipes.omegaconf",
}


class Opaque(Exception):
    """A value that no recipe can write, with the reason as a clause."""


class Encoder:
    """Encodes the arguments of calls; one per trace, so that an object met twice is written as one."""

    def __init__(self, owner: object = None) -> None:
        self.owner = owner
        self.trees: dict[tuple[int, bool], tuple[object, Any]] = {}
        self._open: set[int] = set()

    def arguments(self, values: dict[str, Any], label: str) -> bool:
        """Encode named arguments in place; `label` starts the path in messages.

        Returns: Whether all were scalars that stay as they are.
        """
        flat = True
        for name, value in values.items():
            kind = type(value)
            if kind not in EXACT and (kind is not str or not value.isalnum()):
                values[name] = encoded = self.value(value, (label, name))
                flat = flat and type(encoded) is str
        return flat

    def value(self, value: Any, where: Where) -> Encoded:
        """Encode one value. Raises TraceError naming the place, the type and the cures."""
        kind = type(value)
        if kind is Node:
            call = value._tl_call
            return call if call.owner is self.owner else self._refuse_foreign(call, where)
        if kind is str:
            return self.text(value, where)
        if kind in EXACT:
            return value
        if kind is list:
            return self.inside(value, where, _list)
        if kind is dict:
            return self._mapping(value, where)
        try:
            return _converting(self.inside(value, where, recipe_of(value)))
        except Opaque as reason:
            raise TraceError(_opaque_text(value, where, str(reason))) from None

    def inside(self, value: Any, where: Where, recipe: Recipe) -> Encoded:
        """Run a recipe with `value` marked as being walked, so that a cycle is an error and not a crash."""
        if id(value) in self._open:
            raise TraceError(f"{path_text(where)} contains itself, and a config is a tree. Break the cycle.")
        self._open.add(id(value))
        try:
            return recipe(value, self, where)
        except RecursionError:
            raise TraceError(f"{path_text(where)} is nested too deeply for a config.") from None
        finally:
            self._open.discard(id(value))

    def items(self, values: Any, where: Where) -> list[Encoded]:
        """Encode the items of a sequence as a list."""
        return _list(values, self, where)

    def call(self, target: Any, args: Any, kwargs: Any, where: Where) -> Encoded:
        """A recipe node of `target` whose arguments are encoded here."""
        node: dict[str, Any] = {"_target_": target}
        if args:
            node["_args_"] = self.items(list(args), where)
        for name, value in kwargs.items():
            if name in RESERVED:
                raise Opaque(f"its field {name!r} means something else to Hydra")
            node[name] = self.value(value, (where, name))
        if any(type(value) in (list, dict) and "_target_" not in value for value in node.values()):
            node["_convert_"] = "all"
        return node

    def text(self, value: str, where: Where) -> Encoded:
        """A string that comes back letter by letter, also when it looks like an interpolation."""
        if needs_escape(value):
            found = MARKED.search(value)
            if found:
                raise TraceNodeError(
                    f"{path_text(where)} holds the text of a recorded call: {found.group()} was formatted "
                    "into a string. Pass the call itself, or the plain values it was given."
                )
            return literal(value)
        return value

    def _refuse_foreign(self, call: Call, where: Where) -> NoReturn:
        raise TraceNodeError(
            f"{path_text(where)} is the call of {call.target.label!r} recorded at {place(call.site)} by "
            "another trace. Make the call inside this one; nothing recorded may be kept for later."
        )

    def _mapping(self, values: dict[Any, Any], where: Where) -> Encoded:
        if not _has_plain_keys(values):
            return self.inside(values, where, _pairs)
        written = self.inside(values, where, _dict)
        if any(type(key) is not str for key in written) and _holds_built(written):
            return _from_pairs([[key, value] for key, value in refuse_relative(written, where).items()])
        return written


def _holds_built(value: Encoded) -> bool:
    """Whether an encoded value holds an object that may be shared; Hydra follows text keys alone to one."""
    kind = type(value)
    if kind is dict:
        return "_record_" in value or ("_target_" not in value and any(map(_holds_built, value.values())))
    return any(map(_holds_built, value)) if kind is list else kind not in EXACT and not isinstance(value, str)


def _converting(node: Encoded) -> Encoded:
    """Hydra puts built `_args_` into a ListConfig, which reads `${` in them and turns tuples into lists,
    unless told."""
    if type(node) is dict and "_convert_" not in node and any(map(is_compound, node.get("_args_", ()))):
        node["_convert_"] = "all"
    return node


def is_compound(value: Encoded) -> bool:
    """Whether an encoded value is more than a scalar."""
    return type(value) in (dict, list, Call, Tree)


def _list(values: Any, encoder: Encoder, where: Where) -> list[Encoded]:
    return [v if type(v) in EXACT else encoder.value(v, (where, index)) for index, v in enumerate(values)]


def _dict(values: dict[Any, Any], encoder: Encoder, where: Where) -> dict[Any, Encoded]:
    return {key: v if type(v) in EXACT else encoder.value(v, (where, key)) for key, v in values.items()}


def _pairs(values: dict[Any, Any], encoder: Encoder, where: Where) -> Encoded:
    return _from_pairs(pairs(values, encoder, where))


def _from_pairs(written: list[list[Encoded]]) -> Encoded:
    return {"_target_": "builtins.dict", "_convert_": "all", "_args_": [written]}


def refuse_relative(values: Encoded, where: Where) -> Encoded:
    """Give back encoded values that a recipe puts deeper than they look, unless one of them counts levels."""
    for value in values.values() if type(values) is dict else values if type(values) is list else ():
        if isinstance(value, Reference) and value.startswith("${."):
            raise TraceError(
                f"{path_text(where)} holds {value!r}, and no level can be counted from inside such a value. "
                "Name the key from the root of the config, or use a list."
            )
        if type(value) is list or (type(value) is dict and "_target_" not in value):
            refuse_relative(value, where)
    return values


def pairs(values: Any, encoder: Encoder, where: Where) -> list[list[Encoded]]:
    """A mapping as a list of `[key, value]`, which takes any key."""
    written = [
        [encoder.value(key, (where, key)), encoder.value(value, (where, key))]
        for key, value in values.items()
    ]
    refuse_relative(written, where)
    return written


def _has_plain_keys(values: dict[Any, Any]) -> bool:
    for key in values:
        if type(key) is not str:
            if type(key) not in _PLAIN_KEYS or key != key:
                return False
        elif key in RESERVED or needs_escape(key):
            return False
        elif "." in key:
            warnings.warn(
                f"The key {key!r} holds a dot: it builds as it is, but the command line cannot override it.",
                stacklevel=6,
            )
    return True


_recipes: dict[type, Recipe] = {}
_inherited: set[type] = set()
_custom: dict[type, Recipe] = {}
_kinds: list[Callable[[type], Recipe | None]] = []
_found: dict[type, Recipe] = {}


def add_recipe(kind: type, recipe: Recipe, *, subclasses: bool = False) -> None:
    """Say how values of a type are written; those of its subclasses only where the recipe keeps their
    type."""
    _recipes[kind] = recipe
    if subclasses:
        _inherited.add(kind)
    _found.clear()


def add_kind(find: Callable[[type], Recipe | None]) -> None:
    """Add a test that gives the recipe of types which share a nature rather than a base class."""
    _kinds.append(find)
    _found.clear()


def recipe_of(value: Any) -> Recipe:
    """The recipe for a value, by its exact type, then its bases, then its nature."""
    kind = type(value)
    recipe = _found.get(kind)
    if recipe is None:
        recipe = _found[kind] = _search(kind)
    return recipe


def _search(kind: type) -> Recipe:
    _load_late(kind)
    for base in kind.__mro__:
        if base in _custom:
            return _custom[base]
    if kind in _recipes:
        return _recipes[kind]
    for find in _kinds:
        recipe = find(kind)
        if recipe is not None:
            return recipe
    return next((_recipes[base] for base in kind.__mro__ if base in _inherited), opaque)


def _load_late(kind: type) -> None:
    """Recipes of a library are loaded with the first value of it, so that importing us loads no library."""
    for base in kind.__mro__:
        library = (getattr(base, "__module__", "") or "").partition(".")[0]
        if library in _LATE:
            import_module(_LATE[library])


def opaque(value: Any, encoder: Encoder, where: Where) -> Encoded:
    """The recipe of last resort: refuse."""
    raise Opaque("nothing says how such a value is written in a config")


def register_encoder(kind: type, encode: Callable[[Any], Any]) -> None:
    """Say how values of your own type are written in a config.

    Args:
        kind: The type; subclasses are included unless they have an encoder of their own.
        encode: Takes the value, gives a call such as `L.call(load_vocabulary)(path=value.path)` or a plain
            value.
    Raises: TypeError when `kind` is not a class or `encode` not callable; later TraceError when `encode`
        gives a value of the same type again.
    """
    if not isinstance(kind, type) or not callable(encode):
        raise TypeError(f"register_encoder(type, function) was given ({kind!r}, {encode!r}).")

    def recipe(value: Any, encoder: Encoder, where: Where) -> Encoded:
        written = encode(value)
        if type(written) is kind:
            raise TraceError(
                f"The encoder of {kind.__name__} gave a {kind.__name__} again. Return a call or a plain "
                f"value."
            )
        return encoder.value(written, where)

    _custom[kind] = recipe
    _found.clear()


def path_text(where: Where) -> str:
    """`"Model(blocks[3].act)"` for messages."""
    keys: list[Any] = []
    while isinstance(where, tuple):
        where, key = where
        keys.append(key)
    text = ""
    for key in reversed(keys):
        if isinstance(key, str) and key.isidentifier():
            text += f".{key}" if text else key
        else:
            text += f"[{key!r}]"
    return f"{where}({text})" if text else str(where)


def _opaque_text(value: Any, where: Where, reason: str) -> str:
    kind = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    try:
        shown = repr(value)
    except Exception:
        shown = "<a value whose repr fails>"
    shown = shown if len(shown) <= 80 else f"{shown[:77]}..."
    frame, site = sys._getframe(1), ""
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        "tl_integrations.language"
    ):
        frame = frame.f_back
    site = f" ({frame.f_code.co_filename}:{frame.f_lineno})"
    return (
        f"{path_text(where)}{site} is {shown} of type {name}, which a config cannot hold: {reason}. "
        "Decorate what builds it with L.configurable, pass L.call(builder)(...) instead, or teach it with "
        f"L.register_encoder({kind.__name__}, function)."
    )


add_recipe(Reference, lambda value, encoder, where: value)
add_recipe(Missing, lambda value, encoder, where: value)
