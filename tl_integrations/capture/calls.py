"""Which module call is running: the stack that forward wrappers keep, and how calls are named."""

from threading import get_ident
from typing import NamedTuple

from tl_integrations.capture.module_tree import ModuleTree, Node


class CallPath(NamedTuple):
    """One module call by name."""

    node: Node
    pass_index: int
    """k-th call of that module within the run."""
    modules: tuple[str, ...]
    """The calls around it, itself last; the root is left out."""


class CallLog:
    """Module calls of one run, in the order in which they began; call 0 is the root.

    Wrappers append to `calls` and move `current`; everything else is worked out when asked for, since a model
    makes many more calls than are ever named.
    """

    __slots__ = ("_nodes", "_passes", "_paths", "_seen", "calls", "current", "owner", "paused", "tree")

    def __init__(self, tree: ModuleTree) -> None:
        self.tree: ModuleTree = tree
        self.calls: list[tuple[int, int]] = [(0, -1)]
        """(module, call around it) of each call."""
        self.current: int = 0
        self.owner: int = get_ident()
        """The thread whose calls count; 0 when the run is over."""
        self.paused: int = 0
        self._seen: dict[int, int] = {}
        self._passes: list[int] = []
        self._nodes: list[int] = []
        self._paths: dict[int, CallPath] = {}

    def path(self, call: int) -> CallPath:
        """The name of a call."""
        found = self._paths.get(call)
        if found is None:
            found = self._paths[call] = self._named(call)
        return found

    def forget(self, call: int) -> None:
        """Drop what was worked out for a call that did not happen."""
        self._paths.pop(call, None)
        while len(self._passes) > call:
            self._seen[self._nodes.pop()] -= 1
            self._passes.pop()

    def pass_of(self, call: int) -> int:
        """Which call of its module a call is, 1-based."""
        while len(self._passes) <= call:
            node, _ = self.calls[len(self._passes)]
            self._seen[node] = self._seen.get(node, 0) + 1
            self._passes.append(self._seen[node])
            self._nodes.append(node)
        return self._passes[call]

    def _named(self, call: int) -> CallPath:
        chain = []
        at = call
        while at > 0:
            chain.append(at)
            at = self.calls[at][1]
        names = tuple(
            f"{self.tree.nodes[self.calls[c][0]].address}:{self.pass_of(c)}" for c in reversed(chain)
        )
        return CallPath(self.tree.nodes[self.calls[call][0]], self.pass_of(call), names)
