"""A selector bound to one model: the plan that answers it, and what else depends on both."""

from dataclasses import dataclass

from tl_integrations.capture.decision_table import DecisionTable, table_for
from tl_integrations.capture.module_tree import ModuleTree
from tl_integrations.capture.planning import Plan, make_plan, remembered
from tl_integrations.capture.selector import Selector
from tl_integrations.capture.selectors import Label, ModuleIo
from tl_integrations.capture.windows import Succession, checked_succession, uses_window
from tl_integrations.errors import SelectorError
from tl_integrations.options import CaptureOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class Binding:
    """What a recorder works out once for a selector and a model."""

    bound: Selector
    plan: Plan
    table: DecisionTable
    succession: Succession | None
    """The two halves of a selector with `followed_by`."""
    windowed: bool
    """The last ops are remembered."""
    late: bool
    """Some part can be answered only by final labels, after the forward."""
    named: tuple[str, ...]
    """Modules whose output or input was asked for by name."""


def binding_for(
    selector: Selector, tree: ModuleTree, options: CaptureOptions, *, graph: bool, halts: bool
) -> Binding:
    """The binding of a selector, made once for each model.

    Args:
        selector: The selector, not bound yet.
        tree: The model's modules.
        options: Look-back.
        graph: The whole graph is logged.
        halts: Every op is looked at, to end the forward early.
    Raises:
        UnknownNameError: if the selector names nothing that exists.
        SelectorError: if nothing can answer to it, or only a logged graph could.
    """
    key = (selector, graph, halts, options.lookback > 0)
    return remembered(tree, key, selector, lambda: _bind(selector, tree, options, graph=graph, halts=halts))


def _bind(
    selector: Selector, tree: ModuleTree, options: CaptureOptions, *, graph: bool, halts: bool
) -> Binding:
    bound = selector.bind(tree)
    succession = checked_succession(bound, options)
    late = any(isinstance(part, Label) and part.is_final for part in bound.parts())
    if late and not graph:
        raise SelectorError(
            f"{selector!r} has a final label, which is known only where every op is logged. "
            "Record with graph=True, or name a module's address or a short label such as 'relu_1'."
        )
    windowed = (options.lookback > 0 or uses_window(bound)) and bound.takes_ops()
    asked = bound if succession is None else succession.candidate
    every = halts or windowed
    return Binding(
        bound=bound,
        plan=make_plan(bound, tree, graph=graph, every_op=every),
        table=DecisionTable(asked, every=True) if every else table_for(asked),
        succession=succession,
        windowed=windowed,
        late=late,
        named=tuple(part.address for part in bound.parts() if isinstance(part, ModuleIo)),
    )
