"""Events from what modules return and are given, through forward hooks on just the named modules.

Hooks are registered last when arming, so they see what a user's own hook put in the output's place.
"""

import sys
from collections.abc import Callable
from dataclasses import dataclass
from threading import get_ident
from typing import Any

from torch import Tensor, nn

from tl_integrations.capture.arena import Copy, copied
from tl_integrations.capture.catch import Catch
from tl_integrations.capture.forward_wrappers import CALLERS, ForwardWrapper
from tl_integrations.capture.leaves import tensor_leaves
from tl_integrations.capture.module_tree import Node
from tl_integrations.capture.run import Run, backward_task
from tl_integrations.capture.selector import Io, Selector
from tl_integrations.capture.watching_mode import WatchingMode
from tl_integrations.options import CaptureSpec


@dataclass(frozen=True, slots=True)
class Tap:
    """One module whose output or input is asked for."""

    node: Node
    io: Io
    decision: Selector | bool
    """What is left to ask of its events."""
    stacked: bool
    """A forward wrapper notes the calls of this module."""


_HOOKS = (
    "_forward_hooks",
    "_forward_hooks_with_kwargs",
    "_forward_hooks_always_called",
    "_forward_pre_hooks",
    "_forward_pre_hooks_with_kwargs",
)


class TapHook:
    """The hook of one tap; knows how to find itself again, also when registering it was interrupted."""

    def __init__(self, tap: Tap, run: Run) -> None:
        module = tap.node.ref()
        assert module is not None, "the tree was checked when arming"
        self._module = module
        self._on_output = tap.io == "output"
        self._hook = _output_hook(tap, run) if self._on_output else _input_hook(tap, run)

    def attach(self) -> None:
        """Register it, last."""
        if self._on_output:
            self._module.register_forward_hook(self._hook)
        else:
            self._module.register_forward_pre_hook(self._hook, with_kwargs=True)

    def detach(self) -> None:
        """Take it away; may be repeated."""
        hooks = self._module._forward_hooks if self._on_output else self._module._forward_pre_hooks
        for key in [key for key, hook in hooks.items() if hook is self._hook]:
            for kind in _HOOKS:
                getattr(self._module, kind).pop(key, None)


def _output_hook(tap: Tap, run: Run) -> Callable[..., None]:
    calls, held = run.calls, run.held
    simple = tap.decision is True and not run.watches_functions
    holds, name = run.holds, tap.node.class_name
    # Without an arena, the plain method: a function of ours around it would cost as much as a small copy.
    copy: Copy = Tensor.clone if run.aliases.copy is copied else run.aliases.copy

    def hook(module: nn.Module, args: Any, out: Any) -> None:
        if calls.owner != get_ident() or calls.paused or backward_task() != -1:
            return
        call = _ended_call(run, tap)
        if not simple or type(out) is not Tensor:
            offer_module(run, tap, call, out)
            return
        # One tensor of a module that is always kept, the usual case of a plan of hooks. It is copied at once:
        # behind a module's output any code may write, unseen where only hooks are armed.
        try:
            if holds:
                held.append((copy(out.detach()), None, call, name, 0, out.requires_grad, None))
                return
            run.event_count += 1
            run.add(run.keep(Catch(out, call, "module", name), out, True, (), None))
        except Exception as error:
            run.on_error(error)

    return hook


def _input_hook(tap: Tap, run: Run) -> Callable[..., None]:
    calls = run.calls

    def hook(module: nn.Module, args: Any, kwargs: Any) -> None:
        if calls.owner == get_ident() and not run.skipping:
            given = args if not kwargs else (*args, kwargs)
            if tap.node.index == 0:
                offer_module(run, tap, 0, given)
                return
            # The wrapper notes the call right after its hooks ran; until then this one stands for it.
            calls.calls.append((tap.node.index, calls.current))
            try:
                offer_module(run, tap, len(calls.calls) - 1, given)
            finally:
                calls.calls.pop()
                calls.forget(len(calls.calls))

    return hook


def _ended_call(run: Run, tap: Tap) -> int:
    """The call that just returned."""
    calls = run.calls
    if tap.node.index == 0:
        return 0
    if tap.stacked:
        wanted = (tap.node.index, calls.current)
        for call in range(len(calls.calls) - 1, -1, -1):
            if calls.calls[call] == wanted:
                return call
    calls.calls.append((tap.node.index, calls.current))
    return len(calls.calls) - 1


class OutputWrapper(ForwardWrapper):
    """Takes a module's output without a hook.

    nn.Transformer leaves its fused path when a hook stands on a layer; a wrapper leaves it on.
    """

    __slots__ = ("run", "tap")
    run: Run

    def __init__(self, module: nn.Module, index: int, tap: Tap) -> None:
        super().__init__(module, index)
        self.tap: Tap = tap

    def prepare(self, run: Run, mode: WatchingMode | None) -> None:
        self.run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        direct = sys._getframe(1).f_code.co_filename not in CALLERS
        out = self.forward(*args, **kwargs)
        run = self.run
        if run.calls.owner == get_ident() and not direct and not run.skipping:
            offer_module(run, self.tap, _ended_call(run, self.tap), out)
        return out


def offer_module(run: Run, tap: Tap, call: int, value: Any) -> None:
    """Ask the selector about each tensor of a module's output or input, and keep what it takes."""
    calls = run.calls
    current, calls.current = calls.current, call
    # What keeping itself computes is no event, where a function mode is on.
    calls.paused += 1
    try:
        for index, (path, leaf) in enumerate(tensor_leaves(value)):
            run.event_count += 1
            try:
                _offer_leaf(run, tap, leaf, path, index)
            except Exception as error:
                run.on_error(error)
    finally:
        calls.paused -= 1
        calls.current = current


def _offer_leaf(run: Run, tap: Tap, leaf: Tensor, path: str, index: int) -> None:
    name, decision = tap.node.class_name, tap.decision
    verdict: bool | CaptureSpec | None = decision is True
    if isinstance(decision, Selector):
        event = run.event(
            leaf,
            kind="module",
            func_name=name,
            type_name="",
            label="",
            path=path,
            output_index=index,
            io=tap.io,
        )
        verdict = decision(event)
        verdict = run.keeping.default if verdict is None else verdict
    if verdict:
        line = None if run.raw is None or tap.io == "input" else run.raw.line_of(leaf)
        caught = Catch(leaf, run.calls.current, "module", name, "", 0, path, index, tap.io, line)
        run.add(run.keep(caught, leaf, verdict, (), None))
