"""Everything of ours that stands on a model or on torch while a forward is watched, and its removal.

Each step's undoing is arranged before the step is taken, so that an exception at any point, a Ctrl-C
included, leaves nothing behind.
"""

import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from threading import get_ident
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from tl_integrations.capture import eager, fast_handle
from tl_integrations.capture.forward_wrappers import (
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


class Arming:
    """Arms one plan again and again; the wrappers are made once."""

    def __init__(self, plan: Plan, tree: ModuleTree) -> None:
        self.plan = plan
        self.tree = tree
        kind = LoggingWrapper if plan.graph else ForwardWrapper
        in_scope = {node.index for node in plan.scope or ()}
        self._wrappers: list[ForwardWrapper] = []
        for node in plan.stacked:
            module = node.ref()
            if module is None or not node.has_forward:
                continue
            chosen = ScopeWrapper if node.index in in_scope else kind
            self._wrappers.append(chosen(module, node.index))
        self._fused = [
            (OutputWrapper(_alive(tap.node.ref()), tap.node.index), tap) for tap in plan.fused_taps
        ]
        self._wrappers += [wrapper for wrapper, _ in self._fused]
        if plan.functions:
            self._wrappers += _quiet_wrappers(tree)

    @contextmanager
    def armed(self, run: Run, make_handler: Callable[[], Handler]) -> Iterator[None]:
        """Watch on this thread until the block ends."""
        plan = self.plan
        with ExitStack() as undo:
            undo.callback(_end, run)
            if self.tree.compiled or (plan.functions and "torch._dynamo" in sys.modules):
                undo.callback(_surely, lambda: eager.release(run))
                eager.force(run)
            undo.callback(_surely, lambda: remove(self._wrappers))
            self._give(run)
            install(self._wrappers, run.calls)
            hooks = [TapHook(tap, run) for tap in plan.taps]
            undo.callback(_surely, lambda: _detach(hooks))
            for hook in hooks:
                hook.attach()
            if plan.functions:
                mode = WatchingMode(make_handler())
                undo.callback(_surely, lambda: fast_handle.remove(mode))
                fast_handle.install(mode)
                if plan.scope is None:
                    undo.callback(_surely, lambda: _take_off_stack(mode))
                    mode.__enter__()  # type: ignore[no-untyped-call]
                else:
                    self._give_mode(mode)
            yield

    def _give(self, run: Run) -> None:
        if run.raw is not None:
            for wrapper in self._wrappers:
                if isinstance(wrapper, LoggingWrapper):
                    wrapper.raw_log = run.raw
        for wrapper, tap in self._fused:
            wrapper.run, wrapper.tap = run, tap

    def _give_mode(self, mode: TorchFunctionMode) -> None:
        for wrapper in self._wrappers:
            if isinstance(wrapper, ScopeWrapper):
                wrapper.mode = mode


class ScopeWrapper(ForwardWrapper):
    """Watches functions only while its module's forward runs."""

    __slots__ = ("mode",)
    mode: TorchFunctionMode

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        log = self.log
        if log.owner != get_ident() or log.paused or sys._getframe(1).f_code.co_filename not in CALLERS:
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


def _end(run: Run) -> None:
    run.calls.owner = 0


def _surely(step: Callable[[], None]) -> None:
    """Take a step that may be repeated, also when an interrupt strikes in its middle."""
    try:
        step()
    except BaseException:
        step()
        raise


def _detach(hooks: Sequence[TapHook]) -> None:
    for hook in hooks:
        hook.detach()


def _mode_stack() -> list[Any]:
    return [torch._C._get_function_stack_at(level) for level in range(torch._C._len_torch_function_stack())]


def _take_off_stack(mode: TorchFunctionMode) -> None:
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
