"""Quick looks at configs: whose kind they are, which names they hold, whether they only need building."""

from typing import Any

GET_OBJECT = "hydra.utils.get_object"
_SCALARS = frozenset({int, float, bool, type(None), bytes})


def is_config_object(value: object) -> bool:
    """Whether this is an object of OmegaConf's, without importing OmegaConf."""
    return type(value).__module__.partition(".")[0] == "omegaconf"


def holds_target(tree: Any) -> bool:
    """Whether anything in plain data would be built."""
    if isinstance(tree, dict):
        return "_target_" in tree or any(map(holds_target, tree.values()))
    return isinstance(tree, list) and any(map(holds_target, tree))


class Names:
    """The import paths in a config, apart by what becomes of them."""

    __slots__ = ("called", "given")

    def __init__(self) -> None:
        self.called: set[str] = set()
        """Those that are called."""
        self.given: set[str] = set()
        """Those that are only handed over."""


def plain_names(tree: Any) -> Names | None:
    """The names in a config without interpolations, configs inside, or anything unusual.

    Returns: None when there is such a thing, a cycle, or a malformed node: the slow way knows how to say it.
    """
    names = Names()
    try:
        return names if _walk(tree, names) else None
    except RecursionError:
        return None


def _walk(node: Any, names: Names) -> bool:
    items: Any = node
    if type(node) is dict:
        items = node.values()
        target = node.get("_target_", _NO_NODE)
        if type(target) is str and target != GET_OBJECT:
            names.called.add(target)
        elif target is not _NO_NODE and not _note_given(node, names):
            return False
    for value in items:
        kind = type(value)
        if kind in _SCALARS:
            continue
        if kind is str:
            if "${" in value:
                return False
        elif kind is dict or kind is list:
            if not _walk(value, names):
                return False
        elif isinstance(value, dict | list) or is_config_object(value):
            return False
    return True


_NO_NODE = object()


def _note_given(node: dict[str, Any], names: Names) -> bool:
    path = node.get("path")
    if node["_target_"] != GET_OBJECT or type(path) is not str:
        return False
    names.given.add(path)
    return True
