"""Take a config apart at its swappable sub-builders, so that each becomes a Hydra group of its own.

`split={"encoder.norm": "batch"}` moves the subtree `encoder.norm` of a body into group
`<group>/encoder/norm`, option `batch`, and leaves the choice in the parent's defaults list. The parent must
not keep the subtree's keys: a swap would merge the new option into them, and its builder would be handed
arguments it does not know.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from tl_integrations.errors import ConfigError, near_names

Path = tuple[str, ...]
REFERENCE = re.compile(r"\$\{(\.*)([^${}:]*)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOption:
    """One config that Hydra can choose."""

    group: str
    """The group, such as `model/norm`; empty for a config without one."""
    name: str
    """The option's name in the group."""
    body: dict[str, Any]
    """Plain containers, with a `defaults` list where a choice was split off."""
    package: str | None = None
    """Where the body lies in the composed config, when it is not the group's path."""

    @property
    def path(self) -> str:
        """Group and name as Hydra asks for them: `model/norm/batch`."""
        return f"{self.group}/{self.name}" if self.group else self.name


def split_options(
    option: GroupOption, split: Mapping[str, str | None], shared: Mapping[str, Any] | None = None
) -> list[GroupOption]:
    """The parent without the split subtrees, then one option per subtree.

    Args:
        option: The whole config.
        split: Dotted path of a sub-builder in the body -> name of its option; None: the name of its target.
        shared: The same config with references for objects used twice, to see what a swap would break.
    Raises: ConfigError when a path names no sub-builder, or when a swap would break a shared object.
    """
    for path in split:
        refuse_crossing(tuple(path.split(".")), option.body if shared is None else shared, option.path)
    outer = [path for path in split if not any(path.startswith(f"{other}.") for other in split)]
    parent, children, defaults = option.body, [], []
    for path in outer:
        parent, subtree = detach(parent, tuple(path.split(".")), option.path)
        name = split[path] or str(subtree["_target_"]).rpartition(".")[2]
        defaults.append({path.replace(".", "/"): name})
        child = replace(
            option,
            group="/".join(filter(None, (option.group, *path.split(".")))),
            name=name,
            body=subtree,
            package=f"{option.package}.{path}" if option.package else None,
        )
        # A choice inside a choice belongs to the inner one and goes when that is swapped away.
        inner = {key.removeprefix(f"{path}."): split[key] for key in split if key.startswith(f"{path}.")}
        children += split_options(child, inner) if inner else [child]
    return [replace(option, body={"defaults": ["_self_", *defaults], **parent}), *children]


def detach(body: Mapping[str, Any], path: Path, owner: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """`body` without the sub-builder at `path`, and that sub-builder; `body` itself is untouched."""
    head, rest = path[0], path[1:]
    child = body.get(head)
    if not isinstance(child, Mapping) or (not rest and "_target_" not in child):
        builders = [key for key, value in body.items() if isinstance(value, Mapping) and "_target_" in value]
        raise ConfigError(
            f"split={'.'.join(path)!r} of {owner!r} names no sub-builder there: found {child!r}. "
            f"{near_names(head, builders)}Sub-builders that can be split: {builders}."
        )
    if rest:
        smaller, subtree = detach(child, rest, owner)
        return {**body, head: smaller}, subtree
    return {key: value for key, value in body.items() if key != head}, dict(child)


def refuse_crossing(split: Path, body: Mapping[str, Any], owner: str) -> None:
    """Raise when an object is used both inside and outside the subtree at `split`."""
    for where, target in references(body):
        crosses = inside(where, split) != inside(target, split)
        shared = inside(target, split) or is_builder(body, target)
        if crosses and shared:
            raise ConfigError(
                f"split={'.'.join(split)!r} of {owner!r} tears one object apart: "
                f"{'.'.join(where)!r} is the same object as {'.'.join(target)!r}, and swapping the option "
                "would leave one of them behind. Make the shared part a parameter of its own outside the "
                "split, or store with sharing='duplicate' and no split."
            )


def references(tree: Any, at: Path = ()) -> Iterator[tuple[Path, Path]]:
    """Every relative `${...}` of a config as (where it stands, what it points to)."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from references(value, (*at, str(key)))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from references(value, (*at, str(index)))
    elif isinstance(tree, str):
        for dots, path in REFERENCE.findall(tree):
            if dots:  # an absolute reference points into the composed config, which is not known here
                yield at, (*at[: len(at) - len(dots)], *path.split("."))


def is_builder(tree: Any, path: Path) -> bool:
    """Whether a whole `_target_` node stands at `path`."""
    for part in path:
        if isinstance(tree, Mapping) and part in tree:
            tree = tree[part]
        elif isinstance(tree, list) and part.isdigit() and int(part) < len(tree):
            tree = tree[int(part)]
        else:
            return False
    return isinstance(tree, Mapping) and "_target_" in tree


def inside(path: Path, subtree: Path) -> bool:
    return path[: len(subtree)] == subtree
