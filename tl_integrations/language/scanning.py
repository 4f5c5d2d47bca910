"""One quick look over a plain config: which names it holds, and whether it needs nothing but building."""

from typing import Any

GET_OBJECT = "hydra.utils.get_object"
_SCALARS = frozenset({int, float, bool, type(None), bytes})


def plain_names(tree: Any) -> set[tuple[str, bool]] | None:
    """The `(name, is called)` pairs of a config without interpolations, configs inside, or anything unusual.

    Returns: None when there is such a thing, a cycle, or a malformed node: the slow way knows how to say it.
    """
    names: set[tuple[str, bool]] = set()
    try:
        return names if _walk(tree, names) else None
    except RecursionError:
        return None


def _walk(node: Any, names: set[tuple[str, bool]]) -> bool:
    if type(node) is dict:
        if "_target_" in node and not _note(node, names):
            return False
        items: Any = node.values()
    else:
        items = node
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
        elif isinstance(value, dict | list) or kind.__module__.partition(".")[0] == "omegaconf":
            return False
    return True


def _note(node: dict[str, Any], names: set[tuple[str, bool]]) -> bool:
    target = node["_target_"]
    if type(target) is not str:
        return False
    if target != GET_OBJECT:
        names.add((target, True))
        return True
    path = node.get("path")
    if type(path) is not str:
        return False
    names.add((path, False))
    return True
