"""The selectors by name: functions, modules, labels, a user's own predicate."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tl_integrations.capture.events import Event
from tl_integrations.capture.labels import (
    FINAL_LABEL,
    is_known_function,
    known_function_names,
    names_function,
)
from tl_integrations.capture.module_tree import ModuleTree
from tl_integrations.capture.selector import (
    FunctionSubject,
    Io,
    ModuleSubject,
    Selector,
    Subject,
    Verdict,
)
from tl_integrations.errors import (
    PredicateError,
    SelectorError,
    UnknownNameError,
    UnsupportedModelError,
    near_names,
)
from tl_integrations.options import CaptureSpec


@dataclass(frozen=True, slots=True, repr=False)
class Func(Selector):
    """Results of a function; `leaf` picks one of several results."""

    name: str
    leaf: int | None = None

    def __call__(self, event: Event) -> Verdict:
        named = event.kind == "op" and names_function(self.name, event.func_name, event.type)
        return named and self.leaf in (None, event.output_index)

    def bind(self, tree: ModuleTree) -> Selector:
        if not is_known_function(self.name):
            raise UnknownNameError(
                f"No torch function is named {self.name!r}. {near_names(self.name, known_function_names())}"
                "Functions have names such as 'relu' or 'conv2d'; module classes are no functions."
            )
        return self

    def settle(self, subject: Subject) -> Selector | bool:
        if not isinstance(subject, FunctionSubject):
            return False
        named = names_function(self.name, subject.func_name, subject.type)
        return self if named and self.leaf is not None else named

    def __repr__(self) -> str:
        return f"tl.func({self.name!r}{'' if self.leaf is None else f', output={self.leaf}'})"


@dataclass(frozen=True, slots=True, repr=False)
class InModule(Selector):
    """What happens inside a module, at any depth, its own output included."""

    address: str
    call: int | None = None

    def __call__(self, event: Event) -> Verdict:
        if self.address == "":
            return True
        if self.call is not None:
            return f"{self.address}:{self.call}" in event.modules
        start = f"{self.address}:"
        return any(call.startswith(start) for call in event.modules)

    def scope(self) -> tuple[str, ...] | None:
        return (self.address,)

    def bind(self, tree: ModuleTree) -> Selector:
        return InModule(tree.find(self.address).address, self.call)

    def __repr__(self) -> str:
        return f"tl.in_module({_called(self.address, self.call)!r})"


@dataclass(frozen=True, slots=True, repr=False)
class ModuleIo(Selector):
    """What a module returned, or was given."""

    address: str
    call: int | None = None
    io: Io = "output"

    def __call__(self, event: Event) -> Verdict:
        here = event.kind == "module" and event.address == self.address and event.io == self.io
        return here and self.call in (None, event.pass_index)

    def bind(self, tree: ModuleTree) -> Selector:
        node = tree.find(self.address)
        if node.scripted:
            raise UnsupportedModelError(
                f"{self.address!r} runs inside TorchScript, which takes no hooks. Name a module around it, "
                "or watch the eager module that it was made from."
            )
        return ModuleIo(node.address, self.call, self.io)

    def settle(self, subject: Subject) -> Selector | bool:
        if not isinstance(subject, ModuleSubject):
            return False
        here = subject.node.address == self.address and subject.io == self.io
        return self if here and self.call is not None else here

    def asks_for(self, subject: ModuleSubject) -> bool:
        return self.settle(subject) is not False

    def takes_ops(self) -> bool:
        return False

    def __repr__(self) -> str:
        io = "" if self.io == "output" else f", io={self.io!r}"
        return f"tl.module({_called(self.address, self.call)!r}{io})"


@dataclass(frozen=True, slots=True, repr=False)
class Label(Selector):
    """The op of a short label, such as `relu_1`, or of a final one, such as `relu_1_2`."""

    name: str

    @property
    def is_final(self) -> bool:
        """Whether it can be answered only after the forward."""
        return FINAL_LABEL.fullmatch(self.name) is not None

    def __call__(self, event: Event) -> Verdict:
        if not self.is_final:
            return event.kind == "op" and event.label == self.name
        # Undecided while the forward runs: kept, and decided again with the final label.
        known = event.final_label
        return known is None or self.name in (known, known.removesuffix(":1"), known.split(":")[0])

    def settle(self, subject: Subject) -> Selector | bool:
        here = isinstance(subject, FunctionSubject) and subject.type == self.name.split("_", 1)[0]
        return self if here else False

    def __repr__(self) -> str:
        return f"tl.label({self.name!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Contains(Selector):
    """Ops whose short label contains a text, in any case."""

    text: str

    def __call__(self, event: Event) -> Verdict:
        return event.kind == "op" and self.text.lower() in event.label.lower()

    def settle(self, subject: Subject) -> Selector | bool:
        return self if isinstance(subject, FunctionSubject) else False

    def __repr__(self) -> str:
        return f"tl.contains({self.text!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Regex(Selector):
    """Ops in whose short label a regular expression is found."""

    pattern: str

    def __call__(self, event: Event) -> Verdict:
        return event.kind == "op" and re.search(self.pattern, event.label) is not None

    def settle(self, subject: Subject) -> Selector | bool:
        return self if isinstance(subject, FunctionSubject) else False

    def __repr__(self) -> str:
        return f"tl.regex({self.pattern!r})"


@dataclass(frozen=True, slots=True, repr=False)
class Where(Selector):
    """What a user's function says, once per op."""

    predicate: Callable[[Event], Verdict]
    name: str = ""

    def __call__(self, event: Event) -> Verdict:
        verdict: object = self.predicate(event)
        if verdict is None or verdict is True or verdict is False or isinstance(verdict, CaptureSpec):
            return verdict
        where = f" in {event.address!r}" if event.address else ""
        raise PredicateError(
            f"{self!r} returned {_short(verdict)} ({type(verdict).__name__}) for {event.func_name!r}{where}. "
            "Return True, False, None or a CaptureSpec."
        )

    def __repr__(self) -> str:
        return f"tl.where({self.name or getattr(self.predicate, '__name__', type(self.predicate).__name__)})"


@dataclass(frozen=True, slots=True, repr=False)
class Output(Selector):
    """One leaf of a result that has several: by number, or by the name in its path."""

    which: int | str

    def __call__(self, event: Event) -> Verdict:
        if isinstance(self.which, int):
            return event.output_index == self.which
        return event.path in (f".{self.which}", f'["{self.which}"]', self.which)

    def __repr__(self) -> str:
        return f"tl.output({self.which!r})"


def func(name: str, *, output: int | None = None) -> Selector:
    """Results of a function: `"relu"`, `"conv2d"`, `"add"`, or exactly `"__add__"`.

    Args:
        name: Its own name, or the type that labels say.
        output: Which of several results, 0-based; None for all.
    Raises:
        SelectorError: if the name is no text; UnknownNameError, once a model is there, for a name that no
            torch function has.
    """
    return Func(_text("func", name), output)


def in_module(address: str) -> Selector:
    """What happens inside a module at any depth.

    Args:
        address: As in `named_modules()`; `""` is the whole model, `"block:2"` only the second call.
    Raises: SelectorError if it is no text, or what follows the colon is no positive number.
    """
    return InModule(*called(_text("in_module", address)))


def module(address: str, *, io: Io = "output") -> Selector:
    """What a module returned, as its last forward hook saw it, or what it was given.

    Args:
        address: As in `named_modules()`; `"block:2"` only the second call.
        io: `"output"` or `"input"`.
    Raises: SelectorError for another `io`, or if what follows the colon is no positive number.
    """
    if io not in ("input", "output"):
        raise SelectorError(f"module(io={io!r}): it is 'output' or 'input'.")
    return ModuleIo(*called(_text("module", address)), io)


def label(name: str) -> Selector:
    """The op of a label.

    Args:
        name: A short label such as `"relu_1"` (the first relu that ran), or a final one such as `"relu_1_2"`
            (the first relu, the second layer of all), which is known only after the forward.
    """
    return Label(_text("label", name))


def contains(text: str) -> Selector:
    """Ops whose short label contains a text, in any case.

    Args:
        text: Such as `"norm"`.
    """
    return Contains(_text("contains", text))


def regex(pattern: str) -> Selector:
    """Ops in whose short label a regular expression is found, as by `re.search`.

    Args:
        pattern: Such as `"^(relu|gelu)_"`.
    Raises: SelectorError if it does not compile.
    """
    try:
        re.compile(_text("regex", pattern))
    except re.error as error:
        raise SelectorError(f"regex({pattern!r}) does not compile: {error}.") from error
    return Regex(pattern)


def where(predicate: Callable[[Event], Verdict], *, name_hint: str = "") -> Selector:
    """What a function says of each op: True, False, None (no opinion) or a CaptureSpec.

    It is called once per op with an `Event` (names, shape, dtype, module; no values). In a composition it
    is called only where the selectors before it leave the answer open.

    Args:
        predicate: Function of an `Event`.
        name_hint: What the selector is called when it is printed; by default the function's name.
    Raises: SelectorError if it cannot be called; while it runs, PredicateError for another answer.
    """
    if not callable(predicate):
        raise SelectorError(f"where({predicate!r}) needs a function of an event.")
    return Where(predicate, name_hint)


def output(which: int | str) -> Selector:
    """One leaf of results that have several: `output(0)`, or `output("logits")` by its name.

    Args:
        which: Its place, 0-based, or its key or attribute.
    Raises: SelectorError if it is neither a number nor a text.
    """
    if isinstance(which, bool) or not isinstance(which, int | str):
        raise SelectorError(f"output({which!r}) needs a number or a name.")
    return Output(which)


def called(text: str) -> tuple[str, int | None]:
    """Split `"block:2"` into the address and the number of the call.

    Raises: SelectorError if what follows the colon is no positive number.
    """
    address, colon, call = text.partition(":")
    if not colon:
        return address, None
    if not (call.isdigit() and int(call) > 0):
        raise SelectorError(
            f"{text!r} has {call!r} after the colon. Calls are numbered from 1: {address + ':2'!r}."
        )
    return address, int(call)


def _called(address: str, call: int | None) -> str:
    return address if call is None else f"{address}:{call}"


def _text(function: str, value: Any) -> str:
    if not isinstance(value, str):
        raise SelectorError(f"{function}({value!r}) needs a text, not {type(value).__name__}.")
    return value


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:
        text = "a value whose repr fails"
    return text if len(text) <= 80 else text[:77] + "..."
