"""Selectors that look at neighbours: `followed_by` and `preceded_by`."""

import warnings
from collections.abc import Iterator
from dataclasses import dataclass

from tl_integrations.capture.events import Event
from tl_integrations.capture.module_tree import ModuleTree
from tl_integrations.capture.selector import And, Selector, Verdict
from tl_integrations.errors import PredicateError, SelectorError
from tl_integrations.options import CaptureOptions


@dataclass(frozen=True, slots=True, repr=False)
class PrecededBy(Selector):
    """Ops that came after one of the other kind, within the window."""

    inner: Selector

    def __call__(self, event: Event) -> Verdict:
        return any(self.inner(recent) for recent in event.recent_ops)

    def bind(self, tree: ModuleTree) -> Selector:
        return PrecededBy(self.inner.bind(tree))

    def parts(self) -> Iterator[Selector]:
        yield self
        yield from self.inner.parts()

    def __repr__(self) -> str:
        return f"tl.preceded_by({self.inner!r})"


@dataclass(frozen=True, slots=True, repr=False)
class FollowedBy(Selector):
    """Ops whose result is read by one of the other kind, within the window."""

    inner: Selector

    def __call__(self, event: Event) -> Verdict:
        raise SelectorError(
            f"{self!r} is answered only while a forward runs; it cannot select among records."
        )

    def bind(self, tree: ModuleTree) -> Selector:
        return FollowedBy(self.inner.bind(tree))

    def parts(self) -> Iterator[Selector]:
        yield self
        yield from self.inner.parts()

    def __repr__(self) -> str:
        return f"tl.followed_by({self.inner!r})"


@dataclass(frozen=True, slots=True)
class Succession:
    """`candidate & followed_by(successor)`, taken apart."""

    candidate: Selector
    successor: Selector


def followed_by(inner: Selector) -> Selector:
    """Ops whose result is directly read by an op that `inner` takes, at most `lookback` ops later.

    It stands beside other selectors: `tl.func("conv2d") & tl.followed_by(tl.func("relu"))` keeps the
    convolutions, not the ReLUs. Needs `CaptureOptions(lookback=K, lookback_payload_policy=...)`.

    Args:
        inner: What must follow.
    Raises:
        SelectorError: if `inner` is no selector; PredicateError, with a model, where it stands alone.
    """
    return FollowedBy(_checked("followed_by", inner))


def preceded_by(inner: Selector) -> Selector:
    """Ops that ran at most `lookback` ops after one of `inner`: neighbours in time, not in dataflow.

    Args:
        inner: What must have run before.
    Raises:
        SelectorError: if `inner` is no selector.
    """
    return PrecededBy(_checked("preceded_by", inner))


def split_succession(selector: Selector) -> Succession | None:
    """The two halves of a selector with `followed_by`; None when it has none.

    Raises:
        PredicateError: if `followed_by` stands alone.
        SelectorError: if it stands under `|` or `~`, or twice.
    """
    if not any(isinstance(part, FollowedBy) for part in selector.parts()):
        return None
    if isinstance(selector, FollowedBy):
        raise PredicateError(
            f"{selector!r} stands alone: it says what must follow, not what to keep. "
            "Write `tl.func('conv2d') & tl.followed_by(...)`."
        )
    operands = selector.operands if isinstance(selector, And) else ()
    after = [part for part in operands if isinstance(part, FollowedBy)]
    rest = [part for part in operands if not isinstance(part, FollowedBy)]
    nested = [p for part in (*rest, *(a.inner for a in after)) for p in part.parts()]
    if len(after) != 1 or any(isinstance(part, FollowedBy) for part in nested):
        raise SelectorError(
            f"{selector!r}: followed_by stands once, joined with `&` at the outermost level; "
            "it cannot stand under `|`, `~` or another followed_by."
        )
    return Succession(rest[0] if len(rest) == 1 else And(tuple(rest)), after[0].inner)


def checked_succession(selector: Selector, options: CaptureOptions) -> Succession | None:
    """The two halves of a selector with `followed_by`, if the options let its payloads be held.

    Raises:
        PredicateError: if nothing is held of past ops.
    """
    succession = split_succession(selector)
    if succession is not None and options.lookback_payload_policy == "metadata_only":
        raise PredicateError(
            "followed_by keeps an op after a later one has run, so candidates must be held meanwhile. Pass "
            'CaptureOptions(lookback=K, lookback_payload_policy="detached_raw").'
        )
    if succession is not None and options.lookback == 0:
        warnings.warn(
            "followed_by with lookback=0 holds no candidate, so nothing is kept. "
            "Pass CaptureOptions(lookback=K).",
            RuntimeWarning,
            stacklevel=5,
        )
    return succession


def uses_window(selector: Selector) -> bool:
    """Whether some part looks at the ops before."""
    return any(isinstance(part, PrecededBy | FollowedBy) for part in selector.parts())


def _checked(name: str, inner: Selector) -> Selector:
    if not isinstance(inner, Selector):
        raise SelectorError(f"{name}({inner!r}) needs a selector, such as tl.func('relu').")
    if not inner.takes_ops():
        raise SelectorError(f"{name}({inner!r}) needs a selector of ops, such as tl.func('relu').")
    return inner
