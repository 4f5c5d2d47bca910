"""Where two traces of a model part: the first op that differs in graph, shape, dtype or value."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import torch

from tl_integrations.capture.ops import Op


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """The first op at which two traces part."""

    label: str
    """Its name in the first trace, or in the second where the first has ended."""
    what: Literal["graph", "shape", "dtype", "value"]
    detail: str
    """Both sides, in words."""
    max_abs: float | None = None
    """Greatest absolute difference of the values."""

    def __str__(self) -> str:
        return f"{self.label} differs in {self.what}: {self.detail}"


def first_difference(a: Sequence[Op], b: Sequence[Op], *, rtol: float, atol: float) -> Difference | None:
    """The first op, in order, at which `b` differs from `a`; None if none does."""
    for mine, theirs in zip(a, b):
        found = _difference(mine, theirs, rtol, atol)
        if found is not None:
            return found
    if len(a) == len(b):
        return None
    longer = a if len(a) > len(b) else b
    label = longer[min(len(a), len(b))].label
    return Difference(label=label, what="graph", detail=f"one trace has {len(a)} tensors, the other {len(b)}")


def _difference(a: Op, b: Op, rtol: float, atol: float) -> Difference | None:
    facts_a, facts_b = (a.kind, a.func_name, a.parents), (b.kind, b.func_name, b.parents)
    if facts_a != facts_b:
        detail = f"{_described(a)} and {_described(b)}"
        return Difference(label=a.label, what="graph", detail=detail)
    if a.shape != b.shape:
        return Difference(label=a.label, what="shape", detail=f"{list(a.shape)} and {list(b.shape)}")
    if a.dtype != b.dtype:
        return Difference(label=a.label, what="dtype", detail=f"{a.dtype} and {b.dtype}")
    if a.has_saved_activation and b.has_saved_activation:
        return _value_difference(a, b, rtol, atol)
    return None


def _described(op: Op) -> str:
    return f"{op.label} = {op.func_name or op.kind}({', '.join(op.parents)})"


def _value_difference(a: Op, b: Op, rtol: float, atol: float) -> Difference | None:
    x, y = a.out, b.out.to(a.out.device)
    if x.shape != y.shape or torch.allclose(
        _comparable(x), _comparable(y), rtol=rtol, atol=atol, equal_nan=True
    ):
        return None
    worst = (_comparable(x) - _comparable(y)).abs().nan_to_num(nan=float("inf")).max().item()
    detail = f"values differ by up to {worst:.3g} in {list(a.shape)} {a.dtype}"
    return Difference(label=a.label, what="value", detail=detail, max_abs=worst)


def _comparable(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.complex128 if x.is_complex() else torch.float64)
