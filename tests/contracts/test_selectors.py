"""What every selector promises to a recorder: `Selector` of `capture/selector.py`.

A new selector is one more line in `SELECTORS` and passes unchanged.
"""

import copy
import pickle
import re

import pytest
import torch
from torch import Tensor, nn

import tl_integrations as tl
from tl_integrations.capture.events import Event
from tl_integrations.capture.module_tree import ModuleTree
from tl_integrations.capture.selector import FunctionSubject, Selector
from tl_integrations.capture.selector_text import as_selector


class Block(nn.Module):
    """Two results of one op, a repeated module, an operator."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = nn.Sequential(nn.Linear(4, 4), nn.ReLU())

    def forward(self, x: Tensor) -> Tensor:
        first, second = self.inside(self.inside(x)).chunk(2, dim=1)
        return torch.cat([second, first], 1) + x


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.block, self.head = Block(), nn.Linear(4, 2)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.relu(self.block(x)))


def is_wide(event: Event) -> bool:
    return event.kind == "op" and event.shape[-1:] == (4,)


SELECTORS: dict[str, Selector] = {
    "func": tl.func("relu"),
    "func with a leaf": tl.func("chunk", output=1),
    "in_module": tl.in_module("block.inside"),
    "in_module of one call": tl.in_module("block.inside:2"),
    "module": tl.module("block.inside"),
    "module of one call": tl.module("block.inside:2"),
    "module input": tl.module("head", io="input"),
    "short label": tl.label("relu_2"),
    "contains": tl.contains("LIN"),
    "regex": tl.regex("^relu_[23]$"),
    "where": tl.where(is_wide),
    "output": tl.output(0),
    "glob": as_selector("block.**"),
    "address": as_selector("block.inside:1"),
    "and": tl.func("relu") & tl.in_module("block"),
    "or": tl.func("relu") | tl.module("head") | tl.label("linear_1"),
    "not": ~tl.func("relu") & ~tl.in_module("block"),
    "nested": (tl.func("relu") | tl.func("linear")) & ~tl.in_module("block.inside:1"),
}
WRITABLE = [name for name in SELECTORS if name not in ("where", "glob", "address")]
"""A user's function has no text, and a text is its own."""


@pytest.fixture(params=SELECTORS, ids=list(SELECTORS))
def selector(request: pytest.FixtureRequest) -> Selector:
    return SELECTORS[request.param]


@pytest.fixture(scope="module")
def model() -> Net:
    torch.manual_seed(0)
    return Net()


@pytest.fixture(scope="module")
def events(model: Net) -> list[Event]:
    """Every op of one forward, as a user's own function sees it."""
    seen: list[Event] = []
    tl.record(model, torch.randn(3, 4), save=tl.where(lambda event: seen.append(event) is None), graph=True)
    assert len(seen) > 8
    return seen


def names(model: Net, selector: Selector, graph: bool) -> list[tuple[str, int, str, tuple[int, ...]]]:
    recording = tl.record(model, torch.ones(3, 4), save=selector, graph=graph)
    return [(r.address, r.pass_index, r.func_name, r.shape) for r in recording]


def test_every_plan_records_the_same(model: Net, selector: Selector) -> None:
    whole = names(model, selector, graph=True)
    assert whole and names(model, selector, graph=False) == whole


def test_what_is_settled_early_is_what_it_says_of_each_op(
    model: Net, events: list[Event], selector: Selector
) -> None:
    bound = selector.bind(ModuleTree(model))
    for event in events:
        settled = bound.settle(FunctionSubject(event.func_name, event.type))
        early = settled if isinstance(settled, bool) else bool(settled(event))
        assert early == bool(bound(event))


def test_its_scope_holds_every_op_that_it_takes(model: Net, events: list[Event], selector: Selector) -> None:
    bound = selector.bind(ModuleTree(model))
    scope = bound.scope()
    taken = [event for event in events if bound(event)]
    assert bound.takes_ops() or not taken
    for event in taken if scope is not None else ():
        addresses = [call.rpartition(":")[0] for call in event.modules]
        assert any(address in scope for address in addresses)


def test_binding_leaves_it_as_it_was(model: Net, selector: Selector) -> None:
    before = repr(selector)
    selector.bind(ModuleTree(model))
    assert repr(selector) == before and selector == copy.deepcopy(selector)


def test_it_is_a_value_that_travels(selector: Selector) -> None:
    again = pickle.loads(pickle.dumps(selector))
    assert again == selector and hash(again) == hash(selector)


@pytest.mark.parametrize("selector", WRITABLE, indirect=True)
def test_its_text_means_the_same(selector: Selector) -> None:
    assert as_selector(re.sub(r"tl\.(?=\w+\()", "", repr(selector))) == selector


def test_it_composes_with_any_other(model: Net, events: list[Event], selector: Selector) -> None:
    tree, other = ModuleTree(model), tl.func("linear")
    one, two = selector.bind(tree), other.bind(tree)
    for event in events:
        assert bool((one & two)(event)) == bool(one(event) and two(event))
        assert bool((one | two)(event)) == bool(one(event) or two(event))
