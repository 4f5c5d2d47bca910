"""The least that has to be armed so that a selector can be answered.

Module outputs need hooks on just those modules. Ops need the function mode; if all of them lie inside named
modules, it is on only inside those. Forward wrappers are needed where an op's module must be known. A plan is
made from names alone: learning one from a first run would be wrong as soon as control flow changes.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import TypeVar

import torch

from tl_integrations.capture.module_source import Tap
from tl_integrations.capture.module_tree import FUSED, ModuleTree, Node
from tl_integrations.capture.selector import Io, ModuleSubject, Selector
from tl_integrations.capture.selectors import Contains, Label, Regex, Where
from tl_integrations.capture.windows import FollowedBy, PrecededBy, uses_window
from tl_integrations.errors import SelectorError

T = TypeVar("T")
_MOST_PLANS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What to arm."""

    taps: tuple[Tap, ...]
    """Modules to hook."""
    fused_taps: tuple[Tap, ...]
    """Modules whose output is taken by a wrapper, since a hook would change how they compute."""
    functions: bool
    """The function mode is needed."""
    scope: tuple[Node, ...] | None
    """It is needed only inside these; None: everywhere."""
    stacked: tuple[Node, ...]
    """Modules whose calls are noted."""
    graph: bool

    @property
    def counts_ops(self) -> bool:
        """Whether every op of the run is seen, so that short labels are known."""
        return self.functions and self.scope is None


def remembered(tree: ModuleTree, key: Hashable, selector: Selector, make: Callable[[], T]) -> T:
    """What was made before for this model.

    Not held: what has a user's function in it, since that may hold the model, and what looks at the ops
    before, since its options are checked each time.
    """
    found: T | None = tree.made.get(key)
    if found is not None:
        return found
    if len(tree.made) > _MOST_PLANS:
        tree.made.clear()
    found = make()
    if not any(isinstance(part, Where | PrecededBy | FollowedBy) for part in selector.parts()):
        tree.made[key] = found
    return found


def make_plan(selector: Selector, tree: ModuleTree, *, graph: bool, every_op: bool = False) -> Plan:
    """Plan for a bound selector.

    Args:
        selector: The selector.
        tree: The model's modules.
        graph: Every op is logged.
        every_op: Every op is looked at for another reason.
    Raises:
        SelectorError: if nothing can answer to the selector.
    """
    functions = graph or every_op or selector.takes_ops()
    scope = None if graph or every_op or not functions or _needs_all_ops(selector) else _scope(selector, tree)
    asked = [(node, io) for node in tree.nodes for io in _IOS if selector.asks_for(ModuleSubject(node, io))]
    stacked = (
        _stacked(tree, scope)
        if functions
        else tuple({n.index: n for n, io in asked if io == "input" and n.index}.values())
    )
    noted = {node.index for node in stacked} | {0}
    taps = [
        Tap(node, io, decision, node.index in noted and bool(stacked or functions))
        for node, io in asked
        if (decision := selector.settle(ModuleSubject(node, io))) is not False
    ]
    if not taps and not selector.takes_ops():
        raise SelectorError(f"{selector!r} selects nothing: no op and no module's output can answer to it.")
    fused = [] if functions else [tap for tap in taps if _stays_fused(tap)]
    return Plan(
        taps=tuple(tap for tap in taps if tap not in fused),
        fused_taps=tuple(fused),
        functions=functions,
        scope=scope,
        stacked=stacked,
        graph=graph,
    )


def captured_modules(plan: Plan) -> frozenset[str] | None:
    """Addresses of the modules that a plan looks into; None: the whole model."""
    nodes = [tap.node for tap in (*plan.taps, *plan.fused_taps)] + list(plan.scope or ())
    whole = plan.functions and plan.scope is None
    return None if whole or any(node.index == 0 for node in nodes) else frozenset(n.address for n in nodes)


_IOS: tuple[Io, ...] = ("output", "input")


def _needs_all_ops(selector: Selector) -> bool:
    return uses_window(selector) or any(isinstance(p, Label | Contains | Regex) for p in selector.parts())


def _scope(selector: Selector, tree: ModuleTree) -> tuple[Node, ...] | None:
    addresses = selector.scope()
    if addresses is None or "" in addresses:
        return None
    return tuple({node.index: node for node in map(tree.find, addresses)}.values())


def _stacked(tree: ModuleTree, scope: tuple[Node, ...] | None) -> tuple[Node, ...]:
    """Modules whose calls must be noted: all, or those around and inside the scope."""
    if scope is None:
        return tuple(tree.nodes[1:])
    wanted = [address for node in scope for address in node.addresses]

    def near(address: str) -> bool:
        return any(f"{w}.".startswith(f"{address}.") or address.startswith(f"{w}.") for w in wanted)

    return tuple(node for node in tree.nodes[1:] if any(map(near, node.addresses)))


def _stays_fused(tap: Tap) -> bool:
    module = tap.node.ref()
    return isinstance(module, FUSED) and tap.io == "output" and not module._forward_hooks


def leaves_fused_path(plan: Plan, tree: ModuleTree) -> str | None:
    """A module that would compute by a fused kernel now, but not under this plan; None if there is none."""
    if torch.is_grad_enabled() and any(p.requires_grad for p in _parameters(tree)):
        return None
    inside = {tap.node.address for tap in plan.taps}
    for node in tree.nodes:
        module = node.ref()
        if isinstance(module, FUSED) and not module.training:
            below = any(a == node.address or a.startswith(f"{node.address}.") for a in inside)
            if below or (plan.functions and _in_scope(plan, node)):
                return node.address or type(module).__name__
    return None


def _parameters(tree: ModuleTree) -> list[torch.nn.Parameter]:
    root = tree.nodes[0].ref()
    return [] if root is None else list(root.parameters())


def _in_scope(plan: Plan, node: Node) -> bool:
    if plan.scope is None:
        return True
    return any(f"{node.address}.".startswith(f"{a}.") for scope in plan.scope for a in scope.addresses)
