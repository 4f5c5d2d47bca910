"""A selector and its algebra: small predicates over events, composed with `&`, `|` and `~`.

A selector answers an `Event`. Before a forward it is bound to a model, which finds mistyped names, and asked
to settle what it can from a subject alone (a function, or a module's output), so that most functions are
decided once and not at every call.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from tl_integrations.capture.events import Event
from tl_integrations.capture.module_tree import ModuleTree, Node
from tl_integrations.errors import SelectorError
from tl_integrations.options import CaptureSpec

Verdict = bool | CaptureSpec | None
Io = Literal["input", "output"]


@dataclass(frozen=True, slots=True)
class FunctionSubject:
    """A function, before any of its calls."""

    func_name: str
    type: str


@dataclass(frozen=True, slots=True)
class ModuleSubject:
    """A module's output or input, before any of its calls."""

    node: Node
    io: Io


Subject = FunctionSubject | ModuleSubject


class Selector(ABC):
    """Decides of an event whether it is kept; immutable."""

    __slots__ = ()

    @abstractmethod
    def __call__(self, event: Event) -> Verdict:
        """Whether to keep the event's tensor."""

    def bind(self, tree: ModuleTree) -> "Selector":
        """The same for one model, with the names that its records carry.

        Raises:
            UnknownNameError: for a name that does not exist there.
        """
        return self

    def settle(self, subject: Subject) -> "Selector | bool":
        """What is left to ask of events of this subject: True or False when the subject decides."""
        return self

    def parts(self) -> "Iterator[Selector]":
        """This selector and all that it is composed of."""
        yield self

    def asks_for(self, subject: ModuleSubject) -> bool:
        """Whether it names this module's output or input; selectors of ops never do."""
        return False

    def takes_ops(self) -> bool:
        """Whether results of functions can answer to it."""
        return True

    def scope(self) -> tuple[str, ...] | None:
        """Modules inside which every op lies that can answer to it; None: anywhere."""
        return None

    def __and__(self, other: "Selector") -> "Selector":
        return And((*_operands(And, self), *_operands(And, other)))

    def __or__(self, other: "Selector") -> "Selector":
        return Or((*_operands(Or, self), *_operands(Or, other)))

    def __invert__(self) -> "Selector":
        return Not(self)


@dataclass(frozen=True, slots=True, repr=False)
class And(Selector):
    """All of them; asked from left to right until one says no. The last CaptureSpec wins."""

    operands: tuple[Selector, ...]

    def __call__(self, event: Event) -> Verdict:
        verdict: Verdict = True
        for selector in self.operands:
            answer = selector(event)
            if not answer:
                return False
            if answer is not True:
                verdict = answer
        return verdict

    def bind(self, tree: ModuleTree) -> Selector:
        return And(tuple(selector.bind(tree) for selector in self.operands))

    def settle(self, subject: Subject) -> Selector | bool:
        left = [selector.settle(subject) for selector in self.operands]
        if any(selector is False for selector in left):
            return False
        open_parts = tuple(selector for selector in left if not isinstance(selector, bool))
        return True if not open_parts else open_parts[0] if len(open_parts) == 1 else And(open_parts)

    def parts(self) -> Iterator[Selector]:
        yield self
        for selector in self.operands:
            yield from selector.parts()

    def asks_for(self, subject: ModuleSubject) -> bool:
        return any(selector.asks_for(subject) for selector in self.operands)

    def takes_ops(self) -> bool:
        return all(selector.takes_ops() for selector in self.operands)

    def scope(self) -> tuple[str, ...] | None:
        return next((found for s in self.operands if (found := s.scope()) is not None), None)

    def __repr__(self) -> str:
        return " & ".join(_operand_text(selector) for selector in self.operands)


@dataclass(frozen=True, slots=True, repr=False)
class Or(Selector):
    """Any of them; asked from left to right until one says yes."""

    operands: tuple[Selector, ...]

    def __call__(self, event: Event) -> Verdict:
        for selector in self.operands:
            if answer := selector(event):
                return answer
        return False

    def bind(self, tree: ModuleTree) -> Selector:
        return Or(tuple(selector.bind(tree) for selector in self.operands))

    def settle(self, subject: Subject) -> Selector | bool:
        left: list[Selector] = []
        for selector in self.operands:
            settled = selector.settle(subject)
            if not isinstance(settled, bool):
                left.append(settled)
            elif settled:
                # What stands before a certain yes may still answer with a CaptureSpec.
                return True if not left else Or((*left, Always()))
        return False if not left else left[0] if len(left) == 1 else Or(tuple(left))

    def parts(self) -> Iterator[Selector]:
        yield self
        for selector in self.operands:
            yield from selector.parts()

    def asks_for(self, subject: ModuleSubject) -> bool:
        return any(s.asks_for(subject) and s.settle(subject) is not False for s in self.operands)

    def takes_ops(self) -> bool:
        return any(selector.takes_ops() for selector in self.operands)

    def scope(self) -> tuple[str, ...] | None:
        scopes = [selector.scope() for selector in self.operands if selector.takes_ops()]
        found = [scope for scope in scopes if scope is not None]
        return tuple(name for scope in found for name in scope) if len(found) == len(scopes) else None

    def __repr__(self) -> str:
        return " | ".join(_operand_text(selector) for selector in self.operands)


@dataclass(frozen=True, slots=True, repr=False)
class Not(Selector):
    """Every op that the other does not take."""

    operand: Selector

    def __call__(self, event: Event) -> Verdict:
        return not self.operand(event)

    def bind(self, tree: ModuleTree) -> Selector:
        bound = self.operand.bind(tree)
        if not bound.takes_ops():
            raise SelectorError(
                f"{self!r} would select everything but a module's output. "
                "Say what to take and leave out ops of a module with `~tl.in_module(...)`."
            )
        return Not(bound)

    def settle(self, subject: Subject) -> Selector | bool:
        settled = self.operand.settle(subject)
        return not settled if isinstance(settled, bool) else Not(settled)

    def parts(self) -> Iterator[Selector]:
        yield self
        yield from self.operand.parts()

    def __repr__(self) -> str:
        return f"~{_operand_text(self.operand)}"


@dataclass(frozen=True, slots=True, repr=False)
class Always(Selector):
    """Every op."""

    def __call__(self, event: Event) -> Verdict:
        return True

    def settle(self, subject: Subject) -> Selector | bool:
        return isinstance(subject, FunctionSubject)

    def __repr__(self) -> str:
        return "<every op>"


def _operands(kind: type[And] | type[Or], selector: Selector) -> tuple[Selector, ...]:
    if not isinstance(selector, Selector):
        raise SelectorError(
            f"Cannot compose a selector with {selector!r}. Wrap a function as `tl.where(fn)`, "
            "an address as `tl.module(address)`."
        )
    return selector.operands if isinstance(selector, kind) else (selector,)


def _operand_text(selector: Selector) -> str:
    return f"({selector!r})" if isinstance(selector, And | Or) else repr(selector)
