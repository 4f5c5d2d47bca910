"""The names of a model's modules: addresses, aliases, and wrappers that have no name of their own.

Trees are cached per model and hold it only weakly; a tree is checked against the model each time it is used,
so modules that were added, removed or replaced are seen.
"""

import threading
import weakref
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from types import CodeType
from typing import Any

import torch
from torch import nn

from tl_integrations.errors import UnknownNameError, near_names

_INNER = {
    "OptimizedModule": "_orig_mod",
    "DistributedDataParallel": "module",
    "DataParallel": "module",
    "CheckpointWrapper": "_checkpoint_wrapped_module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
}
_MOST_ALIASES = 8
FUSED = (nn.TransformerEncoderLayer, nn.MultiheadAttention)
"""Modules that compute by one kernel in evaluation, as long as nothing looks inside."""


def inner_module(module: nn.Module) -> nn.Module | None:
    """What a wrapper of torch.compile, DDP, FSDP or checkpointing wraps; None for any other module."""
    name = _INNER.get(type(module).__name__)
    return None if name is None else module._modules.get(name)


def unwrapped(module: nn.Module) -> nn.Module:
    """The module that carries the names."""
    while (inner := inner_module(module)) is not None:
        module = inner
    return module


@dataclass(slots=True, eq=False)
class Node:
    """One module of a tree."""

    ref: "weakref.ref[nn.Module]"
    index: int
    """Position in the tree; 0 is the root."""
    class_name: str
    addresses: list[str] = field(default_factory=list)
    """Its names; the first is the one that records carry."""
    opaque: bool = False
    """A metric: what it computes is no activation."""

    scripted: bool = False
    """It runs inside TorchScript: no hook can stand on it, nothing inside can be seen."""

    has_forward: bool = False
    """It has a forward of its own that a wrapper may stand in for."""

    @property
    def address(self) -> str:
        return self.addresses[0]


def _has_compiled_method(module: nn.Module) -> bool:
    """Whether a method was replaced by its compiled self, as Lightning does with `training_step`."""
    return any(hasattr(value, "_torchdynamo_orig_callable") for value in module.__dict__.values())


class ModuleTree:
    """The modules of one model in registration order, each once."""

    def __init__(self, model: nn.Module) -> None:
        self.nodes: list[Node] = []
        self.by_address: dict[str, Node] = {}
        self.made: dict[Hashable, Any] = {}
        """Plans that were made for this model."""
        self.forwards: list[CodeType | None] = []
        """Code of each node's forward."""
        self.compiled: bool = False
        """Some module runs through torch.compile."""
        self.scripted: list[str] = []
        """Modules that run inside TorchScript, where nothing can be seen."""
        self.has_fused: bool = False
        """Some module may compute by one fused kernel."""
        self.refused: str | None = None
        """Why this model cannot be watched, if so."""
        self._layout: list[tuple[weakref.ref[nn.Module], list[int]]] = []
        by_id: dict[int, Node] = {}
        laid: set[int] = set()
        for address, module in _walk(model):
            if id(module) not in laid:
                laid.add(id(module))
                self._layout.append((weakref.ref(module), [*map(id, module._modules.values())]))
                self.compiled |= inner_module(module) is not None and hasattr(module, "_orig_mod")
                self.compiled |= getattr(module, "_compiled_call_impl", None) is not None
                self.refused = self.refused or _refusal(module)
                self.compiled |= _has_compiled_method(module)
            if inner_module(module) is None:
                self._name(by_id, address, module)

    def _name(self, by_id: dict[int, Node], address: str, module: nn.Module) -> None:
        node = by_id.get(id(module))
        if node is None:
            node = Node(weakref.ref(module), len(self.nodes), type(module).__name__)
            node.opaque = type(module).__module__.split(".", 1)[0] == "torchmetrics"
            by_id[id(module)] = node
            self.nodes.append(node)
            self.has_fused |= isinstance(module, FUSED)
            node.scripted = isinstance(module, torch.jit.ScriptModule)
            node.has_forward = not node.scripted and type(module).forward is not nn.Module.forward
            if node.scripted:
                self.scripted.append(address)
            self.forwards.append(
                getattr(type(module).forward, "__code__", None) if node.has_forward else None
            )
        node.addresses.append(address)
        self.by_address[address] = node

    def fits(self) -> bool:
        """Whether the model still has exactly these modules."""
        for ref, child_ids in self._layout:
            module = ref()
            if module is None:
                return False
            children = module._modules
            # Most modules have no children; they are told apart without making a list.
            if (children or child_ids) and [*map(id, children.values())] != child_ids:
                return False
        return True

    def aliases(self) -> dict[str, str]:
        """Further names of modules, with the name that records carry."""
        return {alias: node.address for node in self.nodes for alias in node.addresses[1:]}

    def find(self, address: str) -> Node:
        """The module of that name.

        Raises:
            UnknownNameError: with the nearest names.
        """
        node = self.by_address.get(address)
        if node is None:
            if "*" in address or "?" in address:
                raise UnknownNameError(
                    f"No module is named {address!r}. A glob is a text: tl.select({address!r}) selects what "
                    "it names, and combines with other selectors."
                )
            raise UnknownNameError(
                f"No module is named {address!r}. {near_names(address, self.by_address)}"
                "List all with `[name for name, _ in model.named_modules()]`."
            )
        return node


def _refusal(module: nn.Module) -> str | None:
    if isinstance(module, nn.DataParallel) and len(module.device_ids) > 1:
        return (
            f"DataParallel copies the model to {len(module.device_ids)} devices at every call; copies cannot "
            "be watched. Use DistributedDataParallel, or watch `model.module` on one device."
        )
    return None


_TREES: "weakref.WeakKeyDictionary[nn.Module, ModuleTree]" = weakref.WeakKeyDictionary()
_LOCK = threading.Lock()


def module_tree(model: nn.Module) -> ModuleTree:
    """The model's tree, built again only when its modules changed."""
    with _LOCK:
        tree = _TREES.get(model)
        if tree is None or not tree.fits():
            tree = _TREES[model] = ModuleTree(model)
        return tree


def _walk(model: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Every (address, module) pair, wrappers included under the address of what they wrap.

    Iterative, since models may be nested deeper than the interpreter's stack; a module inside itself is
    entered once, and a module with very many names is entered under the first few of them.
    """
    counts: dict[int, int] = {}
    pending: list[tuple[str, nn.Module, frozenset[int]]] = [("", model, frozenset())]
    while pending:
        address, module, above = pending.pop()
        counts[id(module)] = counts.get(id(module), 0) + 1
        yield address, module
        if counts[id(module)] > _MOST_ALIASES:
            continue
        inner, above = inner_module(module), above | {id(module)}
        children = [
            (address if child is inner else f"{address}.{name}" if address else name, child, above)
            for name, child in module._modules.items()
            if child is not None and id(child) not in above
        ]
        pending.extend(reversed(children))
