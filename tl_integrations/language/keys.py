"""Paths of keys through a config, as text for messages and as interpolations."""

import re
from typing import Any

from tl_integrations.errors import TraceError

Path = tuple[Any, ...]
"""Keys and indices from the root of a config."""

Where = Any
"""The same as linked pairs `(outer, key)`, None for the root: walks make one per value and flatten few."""

_SIMPLE_KEY = re.compile(r"[A-Za-z_][\w-]*|\d+")


def path_of(where: Where) -> Path:
    """The keys of a linked path, outermost first."""
    keys: list[Any] = []
    while where is not None:
        where, key = where
        keys.append(key)
    keys.reverse()
    return tuple(keys)


def relative(path: Path, first: Path) -> str:
    """The interpolation that leads from `path` to `first` and survives cutting out a subtree that holds
    both."""
    common = 0
    while common < len(path) - 1 and common < len(first) - 1 and path[common] == first[common]:
        common += 1
    return "${" + "." * (len(path) - common) + _joined(first[common:]) + "}"


def _joined(keys: Path) -> str:
    text = ""
    for key in keys:
        plain = str(key)
        if not _SIMPLE_KEY.fullmatch(plain) or isinstance(key, bool | float | bytes):
            if not isinstance(key, str) or re.search(r"[\[\]{}$\s:'\"\\]", plain) or not plain:
                raise TraceError(
                    f"The shared object lies under the key {key!r}, which no interpolation can name. Rename "
                    f"the key or "
                    'use sharing="duplicate".'
                )
            text += f"[{plain}]"
        else:
            text += f".{plain}" if text else plain
    return text


def dotted(path: Path) -> str:
    """`"model.blocks[3].act"` for messages."""
    text = ""
    for key in path:
        if isinstance(key, int) and not isinstance(key, bool):
            text += f"[{key}]"
        else:
            text += f".{key}" if text else str(key)
    return text or "the root"
