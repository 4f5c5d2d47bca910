"""Selectors written as text: `"func('relu') & in_module('encoder')"`, addresses, labels and globs."""

import ast
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tl_integrations.capture.globs import Glob
from tl_integrations.capture.labels import FINAL_LABEL, SHORT_LABEL, known_function_names
from tl_integrations.capture.module_tree import ModuleTree
from tl_integrations.capture.selector import Not, Or, Selector
from tl_integrations.capture.selectors import (
    Label,
    ModuleIo,
    called,
    contains,
    func,
    in_module,
    label,
    module,
    output,
    regex,
    where,
)
from tl_integrations.capture.windows import followed_by, preceded_by
from tl_integrations.errors import SelectorError, UnknownNameError, near_names

_FUNCTIONS: dict[str, Callable[..., Selector]] = {
    f.__name__: f for f in (func, in_module, module, label, contains, regex, output, followed_by, preceded_by)
}
_LONGEST = 10_000


@dataclass(frozen=True, slots=True, repr=False)
class Named(Selector):
    """A bare text, which means an address, a label or the last part of one address of a model."""

    text: str

    def __call__(self, event: Any) -> bool:
        raise SelectorError(f"{self.text!r} means something only for a model; it was not bound to one.")

    def bind(self, tree: ModuleTree) -> Selector:
        address, call = called(self.text)
        if address in tree.by_address:
            return ModuleIo(address, call).bind(tree)
        if FINAL_LABEL.fullmatch(self.text) or SHORT_LABEL.fullmatch(self.text):
            return Label(self.text)
        ends = {n.address for n in tree.nodes for a in n.addresses if a.rsplit(".", 1)[-1] == address}
        if len(ends) == 1 and address:
            return ModuleIo(ends.pop(), call).bind(tree)
        if ends:
            names = ", ".join(repr(name) for name in sorted(ends)[:4])
            raise UnknownNameError(
                f"{address!r} is the last part of {len(ends)} addresses: {names}. Write one in full."
            )
        raise UnknownNameError(f"{self.text!r} names no module and no label. {_instead(address, tree)}")

    def __repr__(self) -> str:
        return f"tl.select({self.text!r})"


def _instead(name: str, tree: ModuleTree) -> str:
    """What may have been meant by a name that the model does not have."""
    near = near_names(name, tree.by_address)
    if name in known_function_names():
        return f"{near}For the function write \"func('{name}')\"."
    if near:
        return f"{near}List all with `[name for name, _ in model.named_modules()]`."
    names = [address for address in tree.by_address if address]
    some = f"{', '.join(map(repr, names[:8]))}{', ...' if len(names) > 8 else ''}"
    return f"Its modules: {some}." if names else "The model has none: write \"func('relu')\"."


def select(text: str) -> Selector:
    """The selector that a text means.

    With a parenthesis it is an expression of `func`, `in_module`, `module`, `label`, `contains`, `regex`,
    `output`, `followed_by`, `preceded_by` with `&`, `|` and `~`; nothing is evaluated. With `*` or `?` it
    is a glob over module addresses (`*` stops at a dot, `**` crosses it) and means those modules' outputs.
    Else it is a module's address, a label, or the last part of exactly one address, with an optional `:k`.

    Args:
        text: Such as `"func('relu') & in_module('encoder')"`, `"blocks.*.attn"` or `"relu_1_2"`.
    Raises:
        SelectorError: if the text does not parse.
    """
    if not isinstance(text, str) or not text.strip():
        raise SelectorError(f"A selector's text was {text!r}. Write an address, a glob or an expression.")
    if "(" in text:
        return _parsed(text)
    return Glob(text.strip()) if "*" in text or "?" in text else Named(text.strip())


def as_selector(save: Any) -> Selector:
    """What `save=` means: a selector, a text, a list of texts, or a predicate.

    Raises:
        SelectorError: for anything else.
    """
    if isinstance(save, Selector):
        return save
    if isinstance(save, str):
        return select(save)
    if isinstance(save, Sequence) and save:
        items = [as_selector(item) for item in save]
        return items[0] if len(items) == 1 else Or(tuple(items))
    if callable(save):
        return where(save)
    raise SelectorError(
        f"save={save!r} selects nothing. Give a selector such as tl.func('relu'), a text, a list of texts, "
        "or a function of an event."
    )


def _parsed(text: str) -> Selector:
    if len(text) > _LONGEST:
        raise SelectorError(f"A selector's text has {len(text)} characters; at most {_LONGEST} are read.")
    try:
        tree = ast.parse(text.strip(), mode="eval")
        return _built(tree.body, text)
    except (SyntaxError, RecursionError, ValueError, MemoryError) as error:
        if isinstance(error, SelectorError):
            raise
        raise SelectorError(f"{text!r} does not parse as a selector: {error}.") from error


def _built(node: ast.expr, text: str) -> Selector:
    match node:
        case ast.BinOp(left=left, op=ast.BitAnd(), right=right):
            return _built(left, text) & _built(right, text)
        case ast.BinOp(left=left, op=ast.BitOr(), right=right):
            return _built(left, text) | _built(right, text)
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return Not(_built(operand, text))
        case ast.Constant(value=str(inner)):
            return select(inner) if "(" not in inner else _refuse(node, text)
        case ast.Call(func=called_by, args=args, keywords=keywords):
            function = _FUNCTIONS.get(_name(called_by))
            if function is None:
                known = ", ".join(sorted(_FUNCTIONS))
                raise SelectorError(f"{ast.unparse(called_by)!r} in {text!r} is no selector. Known: {known}.")
            values = [_argument(a, text) for a in args]
            named = {str(k.arg): _argument(k.value, text) for k in keywords}
            try:
                return function(*values, **named)
            except TypeError as error:
                raise SelectorError(f"{ast.unparse(node)!r}: {error}.") from error
        case _:
            return _refuse(node, text)


def _name(node: ast.expr) -> str:
    match node:
        case ast.Name(id=name) | ast.Attribute(value=ast.Name(id="tl"), attr=name):
            return name
        case _:
            return ""


def _argument(node: ast.expr, text: str) -> Any:
    match node:
        case ast.Constant(value=str() | int() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
        case _:
            return _built(node, text)


def _refuse(node: ast.expr, text: str) -> Selector:
    raise SelectorError(
        f"{ast.unparse(node)!r} in {text!r} is no part of a selector. "
        "Write calls such as func('relu'), joined by &, | and ~."
    )
