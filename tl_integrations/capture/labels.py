"""Names of ops: a function's own name, the normalised type that labels count, and short labels."""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from tl_integrations.capture.oplog import GraphLog

FINAL_LABEL = re.compile(
    r"[a-z][a-z0-9]*_[1-9][0-9]*_[1-9][0-9]*(:[1-9][0-9]*)?|(input|output|buffer)_[1-9][0-9]*"
)
SHORT_LABEL = re.compile(r"[a-z][a-z0-9]*_[1-9][0-9]*")


def function_name(func: Callable[..., Any]) -> str:
    """The name a function goes by: `relu`, `__add__`; of a property's getter the property, such as `T`."""
    name: str = getattr(func, "__name__", type(func).__name__)
    if name in ("__get__", "__set__", "__delete__"):
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return name.split(".", 1)[0]


def type_of(name: str) -> str:
    """The type that labels say: lower case, without underscores.

    >>> type_of("__iadd__"), type_of("max_pool2d"), type_of("relu_")
    ('iadd', 'maxpool2d', 'relu')
    """
    return name.replace("_", "").lower()


def qualified_name(func: Callable[..., Any]) -> str:
    """Where a function lives, such as `torch.nn.functional.relu` or `torch.Tensor.add_`."""
    owner = getattr(func, "__objclass__", None)
    if owner is None:
        owner = getattr(getattr(func, "__self__", None), "__objclass__", None)
    if owner is not None:
        return f"torch.Tensor.{function_name(func)}"
    home = getattr(func, "__module__", None) or "torch"
    return f"{home}.{getattr(func, '__qualname__', function_name(func))}"


def names_function(wanted: str, func_name: str, type_name: str) -> bool:
    """Whether a selector's `wanted` means this function.

    A name with leading or trailing underscores means exactly that function (`add_`, `__add__`); any other the
    function of that name and every function of that type.
    """
    if wanted == func_name:
        return True
    exact = wanted.startswith("_") or wanted.endswith("_")
    return not exact and wanted.replace("_", "") == type_name


def raw_labels(graph: GraphLog) -> list[str]:
    """Label in flight of every line: type, k-th of that type, place among all lines that are no parameter."""
    labels = []
    counts: dict[str, int] = {}
    place = 0
    for line in graph.lines:
        kind = line.type if line.kind == "op" else "buffer" if line.kind == "constant" else line.kind
        if kind == "parameter":
            labels.append("")
            continue
        place += 1
        counts[kind] = counts.get(kind, 0) + 1
        labels.append(f"{kind}_{counts[kind]}_{place}_raw")
    return labels


@lru_cache(maxsize=1)
def known_function_names() -> frozenset[str]:
    """Every name and type that a torch function, tensor method or registered operator goes by."""
    operators = (name.split("::", 1)[1].split(".", 1)[0] for name in torch._C._dispatch_get_all_op_names())
    names = {*dir(torch), *dir(torch.nn.functional), *dir(Tensor), *dir(torch.special), *operators}
    names |= {*dir(torch.linalg), *dir(torch.fft)}
    return frozenset(names | {type_of(name) for name in names})


def is_known_function(name: str) -> bool:
    """Whether some function could answer to `func(name)`; cheap for the usual names."""
    if any(hasattr(home, name) for home in (torch, torch.nn.functional, Tensor)):
        return True
    return name in known_function_names() or name.replace("_", "") in known_function_names()
