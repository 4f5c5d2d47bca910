"""What a user may write for an argument of a callback, as the values the callback works with."""

from collections.abc import Collection, Sequence
from typing import Any

from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from tl_integrations.capture.statistics import DEFAULT
from tl_integrations.errors import UnsupportedModelError

WHICH = ("first", "last", "all")
"""Which of several forwards of one step."""


def known(option: str, values: Sequence[Any], allowed: Collection[str]) -> list[Any]:
    """The values, each of which must be one of those allowed.

    Raises:
        ValueError: naming the option, the value and what is allowed.
    """
    for value in values:
        if value not in allowed:
            raise ValueError(f"{option} is {value!r}. Use one of {', '.join(map(repr, allowed))}.")
    return list(values)


def statistics_of(wanted: bool | Sequence[str]) -> tuple[str, ...]:
    """Names of statistics: the default set for True."""
    if isinstance(wanted, bool):
        return DEFAULT if wanted else ()
    return tuple(wanted)


def ranks_of(wanted: Sequence[int] | str | None) -> frozenset[int] | None:
    """Ranks that keep records; None for all, rank 0 when nothing was said."""
    if isinstance(wanted, str):
        known("ranks", [wanted], ("all",))
        return None
    return frozenset(int(rank) for rank in wanted or [0])


def refuse_compiled(model: nn.Module, policy: str) -> None:
    """Say that a compiled model is not captured.

    Raises:
        UnsupportedModelError: if the policy is "error".
    """
    text = (
        f"{type(model).__name__} runs through torch.compile, and compiled={policy!r} wants no eager forward. "
        "Nothing is captured; use compiled='eager' to run captured steps eagerly."
    )
    if policy == "error":
        raise UnsupportedModelError(text)
    rank_zero_info(text)


def refuse_manual_replay(module: LightningModule) -> None:
    """Say that a training step which steps optimizers itself cannot be run twice.

    Raises:
        UnsupportedModelError: if the module optimises manually.
    """
    if not module.automatic_optimization:
        raise UnsupportedModelError(
            f"replay=True runs the training step a second time, and {type(module).__name__} optimises "
            "manually: its optimizers would step twice. Use watch_nonfinite=True."
        )
