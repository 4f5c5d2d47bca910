"""A config as a flat list: each value with the line of code that it came from."""

from collections.abc import Iterator
from typing import Any

from tl_integrations.language.keys import Path, dotted
from tl_integrations.language.lowering import to_plain
from tl_integrations.language.nodes import Site
from tl_integrations.language.opening import root_and_path
from tl_integrations.language.scanning import is_config_object


def explain(cfg: Any) -> str:
    """One line per value, `key = value`, and after it the file and line of the call that recorded it.

    Args:
        cfg: What `trace`, `call` or `config_of` gave, or a part of it. Plain dicts and loaded configs have no
            places.
    """
    root, path = _placed(cfg)
    rows = [
        (dotted(at) or "(root)", repr(value), _text(root, (*path, *at)))
        for at, value in _leaves(to_plain(cfg), ())
    ]
    width = min(72, max((len(f"{key} = {value}") for key, value, _ in rows), default=0))
    return "\n".join(
        f"{f'{key} = {value}':<{width}}  # {site}" if site else f"{key} = {value}"
        for key, value, site in rows
    )


def _placed(cfg: Any) -> tuple[dict[Path, Site], Path]:
    if not is_config_object(cfg):
        return {}, ()
    root, path = root_and_path(cfg)
    return root.__dict__.get("_tl_sites", {}), path


def _text(sites: dict[Path, Site], path: Path) -> str:
    for cut in range(len(path), -1, -1):
        if path[:cut] in sites:
            file, line = sites[path[:cut]]
            return f"{file}:{line}"
    return ""


def _leaves(value: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    if isinstance(value, dict) and value:
        for key, item in value.items():
            yield from _leaves(item, (*path, key))
    elif isinstance(value, list) and value:
        for index, item in enumerate(value):
            yield from _leaves(item, (*path, index))
    else:
        yield path, value
