"""Everything of ours that stands on a model or on torch while a forward is watched, and its removal.

Every step back may be taken where the step was not, and twice, so that an exception at any point, a Ctrl-C
included, leaves nothing behind.
"""

import sys
from collections.abc import Sequence
from threading import get_ident
from time import perf_counter
from typing import Any

import torch

from tl_integrations.capture import eager, fast_handle
from tl_integrations.capture.forward_wrappers import (
    CALL_IMPL,
    CALLERS,
    ForwardWrapper,
    QuietWrapper,
    install,
    remove,
)
from tl_integrations.capture.graph_source import LoggingWrapper
from tl_integrations.capture.module_source import OutputWrapper, TapHook
from tl_integrations.capture.module_tree import ModuleTree
from tl_integrations.capture.planning import Plan
from tl_integrations.capture.run import Run
from tl_integrations.capture.watching_mode import Handler, WatchingMode

_METRIC_METHODS = ("forward", "update", "compute")


def make_wrappers(plan: Plan, tree: ModuleTree) -> list[ForwardWrapper]:
    """The wrappers of a plan, to be armed again and again."""
    kind = LoggingWrapper if plan.graph else ForwardWrapper
    in_scope = {node.index for node in plan.scope or ()}
    wrappers: list[ForwardWrapper] = []
    for node in plan.stacked:
        module = node.ref()
        if module is not None and node.has_forward:
            wrappers.append((ScopeWrapper if node.index in in_scope else kind)(module, node.index))
    wrappers += [OutputWrapper(_alive(tap.node.ref()), tap.node.index, tap) for tap in plan.fused_taps]
    if plan.functions:
        wrappers += _quiet_wrappers(tree)
    return wrappers


class Arming:
    """Watches on this thread while its block runs."""

    __slots__ = ("_eager", "_hooks", "_mode", "_plan", "_run", "_stands", "_start", "_wrappers")

    def __init__(
        self, plan: Plan, wrappers: Sequence[ForwardWrapper], run: Run, handler: Handler | None
    ) -> None:
        self._plan = plan
        self._wrappers = wrappers
        self._run = run
        self._mode = None if handler is None else WatchingMode(handler)
        self._hooks: list[TapHook] = []
        self._stands = False
        self._eager = run.calls.tree.compiled or (handler is not None and "torch._dynamo" in sys.modules)

    def __enter__(self) -> None:
        self._start = perf_counter()
        self._stands = True
        try:
            self._arm()
        except BaseException:
            self.disarm()
            raise

    def __exit__(self, *_: object) -> None:
        self._run.seconds = perf_counter() - self._start
        self.disarm()

    def disarm(self) -> None:
        """Take everything away, whatever of it is there, also when an interrupt strikes meanwhile.

        To be called again after the block: an interrupt may strike as `__exit__` begins.
        """
        if not self._stands:
            return
        try:
            self._take_away()
        except BaseException:
            self._take_away()
            raise

    def _arm(self) -> None:
        plan, run, mode = self._plan, self._run, self._mode
        if self._eager:
            eager.force(run)
        for wrapper in self._wrappers:
            if type(wrapper) is not ForwardWrapper:
                wrapper.prepare(run, mode)
        install(self._wrappers, run.calls)
        self._hooks = [TapHook(tap, run) for tap in plan.taps]
        for hook in self._hooks:
            hook.attach()
        if mode is not None:
            fast_handle.install(mode)
            if plan.scope is None:
                mode.__enter__()  # type: ignore[no-untyped-call]

    def _take_away(self) -> None:
        """The steps back; each may be repeated."""
        mode = self._mode
        try:
            if mode is not None:
                if self._plan.scope is None:
                    _take_off_stack(mode)
                fast_handle.remove(mode)
        finally:
            try:
                for hook in self._hooks:
                    hook.detach()
            finally:
                remove(self._wrappers)
                if self._eager:
                    eager.release(self._run)
                self._run.calls.owner = 0
        self._stands = False


class ScopeWrapper(ForwardWrapper):
    """Watches functions only while its module's forward runs."""

    __slots__ = ("mode",)
    mode: WatchingMode

    def prepare(self, run: Run, mode: WatchingMode | None) -> None:
        assert mode is not None, "a scope is planned only for functions"
        self.mode = mode

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        log = self.log
        caller = sys._getframe(1).f_code
        outside = caller is not CALL_IMPL and caller.co_filename not in CALLERS
        if outside or log.paused or log.owner != get_ident():
            return self.forward(*args, **kwargs)
        calls, parent = log.calls, log.current
        log.current = len(calls)
        calls.append((self.index, parent))
        mode = self.mode
        try:
            if mode in _mode_stack():
                return self.forward(*args, **kwargs)
            with mode:
                return self.forward(*args, **kwargs)
        finally:
            log.current = parent


def _mode_stack() -> list[Any]:
    return [torch._C._get_function_stack_at(level) for level in range(torch._C._len_torch_function_stack())]


def _take_off_stack(mode: WatchingMode) -> None:
    """Pop the mode, from under others if some were left above it."""
    if mode not in _mode_stack():
        return
    above = []
    while (top := torch._C._pop_torch_function_stack()) is not mode:
        above.append(top)
    for other in reversed(above):
        torch._C._push_on_torch_function_stack(other)


def _quiet_wrappers(tree: ModuleTree) -> list[ForwardWrapper]:
    found = [(node.index, node.ref()) for node in tree.nodes if node.opaque]
    return [
        QuietWrapper(module, index, method)
        for index, module in found
        if module is not None
        for method in _METRIC_METHODS
        if hasattr(type(module), method)
    ]


def _alive(module: torch.nn.Module | None) -> torch.nn.Module:
    assert module is not None, "the tree was checked before planning"
    return module
