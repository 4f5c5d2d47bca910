"""Wrappers in the place of a module's `forward`, on the instance, only while a forward is watched.

Written into the instance's `__dict__`, because `nn.Module.__setattr__` is slow, and because a wrapper there
keeps torch's fast call path for modules without hooks (0.16 us per call where a pair of hooks costs 1.5 us).
Deep-copied, pickled or saved meanwhile, a module takes along the plain method, not the wrapper.
"""

import copy
import sys
import threading
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any

from torch import nn

from tl_integrations.capture.calls import CallLog
from tl_integrations.capture.run import Run
from tl_integrations.capture.watching_mode import WatchingMode

_LOCK = threading.RLock()
_NOTHING = object()


CALL_IMPL = nn.Module._call_impl.__code__
CALLERS = frozenset({CALL_IMPL.co_filename, __file__})
"""Files whose code calls a module's forward in order: torch's `nn.Module.__call__`, and wrappers of ours.
A direct call of `module.forward(...)` is part of its caller, as it is for hooks."""


class ForwardWrapper:
    """Stands where `module.forward` stood and notes which call is running.

    A call from another thread than the watching one, or while watching is paused, goes straight through.
    """

    __slots__ = ("attribute", "attributes", "forward", "index", "log", "module", "previous")

    def __init__(self, module: nn.Module, index: int, attribute: str = "forward") -> None:
        self.module: nn.Module = module
        self.attributes: dict[str, Any] = vars(module)
        self.index: int = index
        self.attribute: str = attribute
        self.log: CallLog = None  # type: ignore[assignment]
        self.previous: Any = _NOTHING
        self.forward: Callable[..., Any] = getattr(type(module), attribute).__get__(module)

    def prepare(self, run: Run, mode: WatchingMode | None) -> None:
        """Take what a kind of wrapper needs of a run that is about to be watched."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        log = self.log
        caller = sys._getframe(1).f_code
        outside = caller is not CALL_IMPL and caller.co_filename not in CALLERS
        if outside or log.paused or log.owner != get_ident():
            return self.forward(*args, **kwargs)
        calls, parent = log.calls, log.current
        log.current = len(calls)
        calls.append((self.index, parent))
        try:
            return self.forward(*args, **kwargs)
        finally:
            log.current = parent

    def __getattr__(self, name: str) -> Any:
        # What asks for `forward.__name__`, its signature or `__func__` is answered by the plain method.
        if name == "__wrapped__":
            return self.forward
        return getattr(self.forward, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        if self.previous is not _NOTHING:
            return copy.deepcopy(self.previous, memo)
        module = memo.get(id(self.module), self.module)
        return getattr(type(module), self.attribute).__get__(module)

    def __reduce__(self) -> tuple[Any, ...]:
        if self.previous is not _NOTHING:
            return _same, (self.previous,)
        return _plain_method, (self.module, self.attribute)


class QuietWrapper(ForwardWrapper):
    """Stands before a method whose inner work is no activation, such as a metric's."""

    __slots__ = ()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        log = self.log
        if log.owner != get_ident():
            return self.forward(*args, **kwargs)
        log.paused += 1
        try:
            return self.forward(*args, **kwargs)
        finally:
            log.paused -= 1


def install(wrappers: Sequence[ForwardWrapper], log: CallLog) -> None:
    """Put wrappers in place; a `forward` that stands on the instance already is called through them.

    Whatever happens meanwhile, `remove` takes away exactly those that were put in place.
    """
    with _LOCK:
        for wrapper in wrappers:
            wrapper.log = log
            attributes, name = wrapper.attributes, wrapper.attribute
            # The usual case first, since a thousand modules are armed in a row: nothing stands there.
            if name in attributes or wrapper.previous is not _NOTHING:
                _chain(wrapper, attributes.get(name, _NOTHING))
            attributes[name] = wrapper


def remove(wrappers: Sequence[ForwardWrapper]) -> None:
    """Take wrappers away and put back what stood there; other captures' wrappers above stay in place."""
    with _LOCK:
        for wrapper in wrappers:
            attributes, name = wrapper.attributes, wrapper.attribute
            standing = attributes.get(name, _NOTHING)
            if standing is not wrapper:
                _unlink(standing, wrapper)
            elif wrapper.previous is _NOTHING:
                del attributes[name]
            else:
                attributes[name] = wrapper.previous


def _chain(wrapper: ForwardWrapper, previous: Any) -> None:
    wrapper.previous = previous
    plain = getattr(type(wrapper.module), wrapper.attribute).__get__(wrapper.module)
    wrapper.forward = plain if previous is _NOTHING else previous


def _unlink(standing: Any, wrapper: ForwardWrapper) -> None:
    """Take a wrapper out from under another capture's that was installed later and is still there."""
    while isinstance(standing, ForwardWrapper):
        if standing.previous is wrapper:
            standing.previous, standing.forward = wrapper.previous, wrapper.forward
            return
        standing = standing.previous


def _same(value: Any) -> Any:
    return value


def _plain_method(module: nn.Module, attribute: str) -> Any:
    return getattr(type(module), attribute).__get__(module)
