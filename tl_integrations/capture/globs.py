"""Patterns over module addresses, and the selector of the modules' outputs that fit one."""

import re
from dataclasses import dataclass
from functools import lru_cache

from tl_integrations.capture.events import Event
from tl_integrations.capture.module_tree import ModuleTree, Node
from tl_integrations.capture.selector import ModuleSubject, Selector, Subject, Verdict
from tl_integrations.errors import UnknownNameError, near_names


def _is_open(node: Node) -> bool:
    return not node.opaque and not node.scripted


@dataclass(frozen=True, slots=True, repr=False)
class Glob(Selector):
    """Outputs of the modules whose address fits a pattern: `*` stops at a dot, `**` crosses it."""

    pattern: str
    addresses: frozenset[str] = frozenset()
    """The modules of the bound model that it means; metrics are left out."""

    def __call__(self, event: Event) -> Verdict:
        return event.kind == "module" and event.io == "output" and self._means(event.address)

    def _means(self, address: str) -> bool:
        if self.addresses:
            return address in self.addresses
        return bool(address) and glob_regex(self.pattern).fullmatch(address) is not None

    def bind(self, tree: ModuleTree) -> Selector:
        fits = glob_regex(self.pattern).fullmatch
        found = [node for node in tree.nodes[1:] if any(map(fits, node.addresses)) and _is_open(node)]
        if not found:
            raise UnknownNameError(
                f"No module's address fits {self.pattern!r}. "
                f"{near_names(self.pattern.replace('*', ''), tree.by_address)}"
                "`*` stops at a dot, `**` crosses it."
            )
        return Glob(self.pattern, frozenset(node.address for node in found))

    def settle(self, subject: Subject) -> Selector | bool:
        return self.asks_for(subject) if isinstance(subject, ModuleSubject) else False

    def asks_for(self, subject: ModuleSubject) -> bool:
        return subject.io == "output" and self._means(subject.node.address)

    def takes_ops(self) -> bool:
        return False

    def __repr__(self) -> str:
        return f"tl.select({self.pattern!r})"


@lru_cache(maxsize=256)
def glob_regex(pattern: str) -> re.Pattern[str]:
    """What a glob over dotted names means: `*` and `?` stop at a dot, `**` crosses it."""
    pieces = (re.escape(piece) for piece in re.split(r"(\*\*|\*|\?)", pattern))
    meaning = {r"\*\*": ".*", r"\*": r"[^.]*", r"\?": r"[^.]"}
    return re.compile("".join(meaning.get(piece, piece) for piece in pieces), re.DOTALL)
