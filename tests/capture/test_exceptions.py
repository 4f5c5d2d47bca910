"""An exception of any kind, anywhere in a watched forward, leaves nothing behind and arrives unchanged."""

import sys
import threading
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils.checkpoint import checkpoint

import tl_integrations as tl
from tl_integrations.capture import arming, forward_wrappers, function_source, module_source, payloads
from tl_integrations.capture.statistics import Summariser

KINDS = (Exception, KeyboardInterrupt, SystemExit)


class Bomb:
    """Raises at its n-th chance."""

    def __init__(self, kind: type[BaseException], countdown: int) -> None:
        self.kind, self.left = kind, countdown

    def __call__(self, value: Any = None) -> Any:
        self.left -= 1
        if self.left == 0:
            raise self.kind("boom")
        return value


class Explosive(nn.Module):
    """A model with a chance to fail between any two of its steps."""

    def __init__(self, bomb: Bomb) -> None:
        super().__init__()
        self.bomb = bomb
        self.enter, self.act, self.leave = nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)
        self.block = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True))
        self.attn = nn.MultiheadAttention(4, 2, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        x = self.bomb(self.enter(x))
        x = self.bomb(self.act(x))
        x = self.bomb(x) + 1
        with torch.no_grad():
            self.bomb()
        y = self.bomb(checkpoint(self.block, x, use_reentrant=False))
        y = self.bomb(F.dropout(y, 0.5, self.training))
        with torch.device("cpu"):
            z = self.bomb(torch.zeros(2, 3, 4)) + y[:, None]
        a, _ = self.attn(z, z, z)
        a[0] = self.bomb(0.0)
        for part in self.bomb(a).unbind(1):
            y = self.bomb(torch.relu(y * part))
        return self.bomb(self.leave(y))


CHANCES = 13
PLANS = {
    "hooks": {"save": "**", "graph": False},
    "functions": {"save": "func('relu')", "graph": False},
    "scope": {"save": "func('relu') & in_module('block')", "graph": False},
    "graph": {"save": "func('relu') | module('block')"},
}


def snapshot(model: nn.Module) -> dict[str, Any]:
    """Everything on which something of ours could stand."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    homes = (F, torch.functional, torch._tensor)
    return {
        "hooks": [len(getattr(m, kind)) for m in model.modules() for kind in hooks],
        "forwards": [id(vars(m).get("forward")) for m in model.modules()],
        "modes": torch._C._len_torch_function_stack(),
        "handles": [home.handle_torch_function for home in homes],
        "call": nn.Module.__call__,
        "threads": threading.active_count(),
        "grad": torch.is_grad_enabled(),
        "saved tensors": saved_tensors_are_packed(),
    }


def saved_tensors_are_packed() -> bool:
    """Whether hooks such as a checkpoint's are on; a saved tensor takes no second pair of them."""
    out = torch.ones(1, requires_grad=True).exp()
    try:
        out.grad_fn._raw_saved_result.register_hooks(lambda tensor: tensor, lambda tensor: tensor)
    except RuntimeError:
        return True
    return False


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plan", PLANS)
@pytest.mark.parametrize("countdown", range(1, CHANCES + 1))
def test_a_failing_forward_leaves_nothing(countdown: int, plan: str, kind: type[BaseException]) -> None:
    model = Explosive(Bomb(kind, countdown))
    before = snapshot(model)
    with pytest.raises(kind, match="boom") as caught:
        tl.record(model, torch.randn(2, 4), **PLANS[plan])
    assert caught.type is kind
    assert snapshot(model) == before


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("site", ["predicate", "halt", "transform", "hook", "mode", "watch", "users_mode"])
def test_a_failing_companion_leaves_nothing(site: str, graph: bool, kind: type[BaseException]) -> None:
    bomb = Bomb(kind, 2)
    model, x = Explosive(Bomb(Exception, 10**6)), torch.randn(2, 4)
    before = snapshot(model)
    options: dict[str, Any] = {"save": tl.func("relu"), "graph": graph, "on_predicate_error": "fail_fast"}
    if site == "predicate":
        options["save"] = lambda event: bomb(True)
    elif site == "halt":
        options["halt"] = lambda event: bomb(False)
    elif site == "transform":
        options["activation_transform"] = bomb
    elif site == "hook":
        handle = model.block.register_forward_hook(lambda *a: bomb.__class__(kind, 1)())
    with pytest.raises(kind, match="boom"):
        if site == "watch":
            with tl.Recorder(model, **options).watch():
                model(x)
                raise kind("boom")
        elif site in ("mode", "users_mode"):
            with Exploding(bomb):
                tl.record(model, x, **options)
        else:
            tl.record(model, x, **options)
    if site == "hook":
        handle.remove()
    assert snapshot(model) == before


class Exploding(TorchFunctionMode):
    """A user's mode around the capture, which fails."""

    def __init__(self, bomb: Bomb) -> None:
        self.bomb = bomb

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") == "relu":
            self.bomb()
        return func(*args, **(kwargs or {}))


INTERNALS: list[tuple[Any, str]] = [
    (arming, "install"),
    (module_source.TapHook, "attach"),
    (arming, "WatchingMode"),
    (arming.fast_handle, "install"),
    (function_source, "tensor_leaves"),
    (module_source, "tensor_leaves"),
    (function_source.Catch, "__init__"),
    (payloads.Aliases, "add"),
    (payloads.Aliases, "release"),
    (payloads.KeptTensor, "__init__"),
    (Summariser, "measure"),
    (forward_wrappers, "_chain"),
]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("site", INTERNALS, ids=lambda site: f"{site[0].__name__}.{site[1]}")
def test_an_interrupt_in_our_own_code_leaves_nothing(
    site: tuple[Any, str], kind: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C strikes in the middle of arming, keeping or copying."""
    owner, name = site
    model, x = Explosive(Bomb(Exception, 10**6)), torch.randn(2, 4)
    before = snapshot(model)
    original: Callable[..., Any] = getattr(owner, name)
    bomb = Bomb(kind, 1)

    def exploding(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        bomb()
        return result

    monkeypatch.setattr(owner, name, exploding)
    summaries = tl.options.SummaryOptions(statistics=("mean",))
    try:
        tl.record(model, x, save="func('relu') | func('unbind') | module('block')", summaries=summaries)
    except kind:
        pass
    monkeypatch.undo()
    assert bomb.left <= 0 or name in ("_chain",)
    assert snapshot(model) == before


@pytest.mark.parametrize("watches", [True, False])
@pytest.mark.parametrize("name", ["__enter__", "_arm", "__exit__", "disarm", "_take_away"])
def test_an_interrupt_as_our_own_code_begins_leaves_nothing(name: str, watches: bool) -> None:
    """Python looks for signals where a function begins: there nothing of it has been arranged yet."""
    model, x = Explosive(Bomb(Exception, 10**6)), torch.randn(2, 4)
    before = snapshot(model)
    code = getattr(arming.Arming, name).__code__

    def strike(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code is code:
            sys.settrace(None)
            raise KeyboardInterrupt

    recorder = tl.Recorder(model, save="func('relu') | module('block')")
    own = sys.gettrace()
    sys.settrace(strike)
    try:
        with pytest.raises(KeyboardInterrupt) as caught:
            if watches:
                with recorder.watch():
                    model(x)
            else:
                recorder(x)
    finally:
        sys.settrace(own)
    assert snapshot(model) == before
    del caught


def test_an_interrupt_in_the_removal_itself_leaves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    model, x = Explosive(Bomb(Exception, 10**6)), torch.randn(2, 4)
    before = snapshot(model)
    bomb = Bomb(KeyboardInterrupt, 1)
    original = arming.remove

    def interrupted(wrappers: Any) -> None:
        original(wrappers[:2])
        bomb()
        original(wrappers)

    monkeypatch.setattr(arming, "remove", interrupted)
    with pytest.raises(KeyboardInterrupt):
        tl.record(model, x, save=tl.func("relu"))
    assert snapshot(model) == before


def failing(seen: Any) -> bool:
    """As a predicate, at the first linear layer; as a transform at once."""
    if getattr(seen, "func_name", "linear") == "linear":
        raise RuntimeError("boom")
    return False


def log(model: nn.Module, x: Tensor) -> None:
    recorder = tl.Recorder(model, save="**", on_forward_error="attach_partial")
    with recorder:
        recorder(x)


def watch(model: nn.Module, x: Tensor) -> None:
    with tl.Recorder(model, save="**").watch():
        model(x)


FAILING: dict[str, Callable[[nn.Module, Tensor], object]] = {
    "no capture": lambda model, x: model(x),
    **{f"record, {plan}": lambda model, x, o=o: tl.record(model, x, **o) for plan, o in PLANS.items()},
    "log": log,
    "watch": watch,
    "trace": tl.trace,
    "predicate at once": lambda model, x: tl.record(model, x, save=failing, on_predicate_error="fail_fast"),
    "predicate later": lambda model, x: tl.record(model, x, save=failing, on_predicate_error="accumulate"),
    "predicate of a trace": lambda model, x: tl.trace(model, x, save=failing),
    "transform": lambda model, x: tl.record(model, x, save="**", activation_transform=failing),
    "halt": lambda model, x: tl.record(model, x, save="**", halt=failing),
}


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("call", FAILING)
def test_what_a_failed_forward_computed_is_gone_with_its_exception(call: str) -> None:
    """A smaller batch can be tried at once, and no checkpoint stays open in frames that the error holds."""
    alive: list[weakref.ref[Tensor]] = []

    class Failing(Explosive):
        def forward(self, x: Tensor) -> Tensor:
            x = torch.relu(x)
            alive.append(weakref.ref(x))
            return super().forward(x)

    ends = call in ("transform", "halt") or call.startswith("predicate")
    model = Failing(Bomb(RuntimeError, 10**6 if ends else 9))
    before = snapshot(model)
    try:
        FAILING[call](model, torch.randn(2, 4))
    except (RuntimeError, tl.errors.TLError) as error:
        assert "boom" in str(error)
    else:
        pytest.fail("nothing was raised")
    assert alive and all(tensor() is None for tensor in alive)
    assert snapshot(model) == before


def test_the_next_capture_after_a_failure_is_right() -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3)

    def bad(event: Any) -> bool:
        raise ValueError("boom")

    with pytest.raises(tl.errors.PredicateError, match="boom") as caught:
        tl.record(net, x, save=bad)
    assert isinstance(caught.value.__cause__, ValueError) and len(caught.value.failures) == 2
    taken = tl.record(net, x, save=tl.func("relu"))
    assert torch.equal(taken[0].out, net(x))
