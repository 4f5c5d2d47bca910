"""Defaults of signatures, written into a config that exists already."""

from collections.abc import Iterable
from typing import Any

from tl_integrations.errors import TLError
from tl_integrations.language.binding import RESERVED
from tl_integrations.language.defaults import with_defaults
from tl_integrations.language.keys import Path, dotted
from tl_integrations.language.lowering import lower
from tl_integrations.language.paths import load
from tl_integrations.language.scanning import GET_OBJECT
from tl_integrations.language.targets import Target, target_of
from tl_integrations.language.trust import Policy


def pinned(tree: Any, *, allow: Iterable[str] | None = None) -> tuple[Any, list[str]]:
    """A copy of a plain config with the defaults of its targets written out, so that it outlives a change of
    them.

    Args:
        tree: Plain dicts, lists and scalars; interpolations stay as they are.
        allow: Further names that may be imported, as in `instantiate`. Other targets are not imported, only
            listed.
    Returns: The copy, and the dotted keys that could not be pinned.
    """
    work = _Pinning(Policy(allow))
    return work.value(tree, ()), work.unpinned


class _Pinning:
    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.unpinned: list[str] = []

    def value(self, value: Any, path: Path) -> Any:
        if type(value) is list:
            return [self.value(item, (*path, index)) for index, item in enumerate(value)]
        if type(value) is not dict:
            return value
        if value.get("_recursive_") is False:
            return value
        copied = {key: self.value(item, (*path, key)) for key, item in value.items()}
        name = value.get("_target_")
        if isinstance(name, str) and name != GET_OBJECT and not value.get("_partial_"):
            self._fill(name, copied, path)
        return copied

    def _fill(self, name: str, node: dict[str, Any], path: Path) -> None:
        target = self._target(name)
        if target is None:
            self.unpinned.append(dotted((*path, "_target_")))
            return
        given = {key: value for key, value in node.items() if key not in RESERVED}
        _, filled, skipped = with_defaults(target, node.get("_args_", []), given)
        self.unpinned += [dotted((*path, key)) for key in skipped]
        for key, encoded in filled.items():
            if key not in given:
                node[key] = _standing_alone(lower(encoded).content, node)

    def _target(self, name: str) -> Target | None:
        if not self.policy.admits(name):
            return None
        try:
            return target_of(load(name))
        except (TLError, ImportError, TypeError):
            return None


def _standing_alone(value: Any, node: dict[str, Any]) -> Any:
    """A default that is a container arrives as one, also where the node hands on configs."""
    if node.get("_convert_", "none") != "none" or type(value) not in (list, dict) or "_target_" in value:
        return value
    kind, content = ("list", value) if type(value) is list else ("dict", [[k, v] for k, v in value.items()])
    return {"_target_": f"builtins.{kind}", "_convert_": "all", "_args_": [content]}
