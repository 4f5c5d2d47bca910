"""What changed between two configs, key by key."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Literal

from tl_integrations.language.canonical import canonical
from tl_integrations.language.keys import Path, dotted
from tl_integrations.language.lowering import to_plain


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One key that differs."""

    key: str
    """Dotted key, such as `"model.blocks[1].act"`."""
    kind: Literal["added", "removed", "changed"]
    """What happened to it on the way from the first config to the second."""
    before: Any = None
    """The plain value in the first config."""
    after: Any = None
    """The plain value in the second config."""

    def __str__(self) -> str:
        if self.kind == "added":
            return f"+ {self.key}: {self.after!r}"
        if self.kind == "removed":
            return f"- {self.key}: {self.before!r}"
        return f"~ {self.key}: {self.before!r} -> {self.after!r}"


class Diff(tuple[Change, ...]):
    """The changes between two configs in the order of the first; empty, and so false, when they are equal."""

    __slots__ = ()

    def __str__(self) -> str:
        return "\n".join(map(str, self)) or "no difference"


def diff(a: Any, b: Any) -> Diff:
    """Compare two configs as they are written: NaN equals NaN, the order of keys does not count, 1 is not
    True.

    Args:
        a: A DictConfig, a plain dict or a list.
        b: The same.
    """
    return Diff(_changes(to_plain(a), to_plain(b), ()))


def _changes(a: Any, b: Any, path: Path) -> Iterator[Change]:
    if type(a) is dict and type(b) is dict:
        for key, value in a.items():
            if key in b:
                yield from _changes(value, b[key], (*path, key))
            else:
                yield Change(key=dotted((*path, key)), kind="removed", before=value)
        for key, value in b.items():
            if key not in a:
                yield Change(key=dotted((*path, key)), kind="added", after=value)
    elif type(a) is list and type(b) is list:
        for index in range(max(len(a), len(b))):
            where = (*path, index)
            if index >= len(b):
                yield Change(key=dotted(where), kind="removed", before=a[index])
            elif index >= len(a):
                yield Change(key=dotted(where), kind="added", after=b[index])
            else:
                yield from _changes(a[index], b[index], where)
    elif canonical(a) != canonical(b):
        yield Change(key=dotted(path), kind="changed", before=a, after=b)
