"""What a user may write for an argument of a callback, as the values the callback works with."""

from collections.abc import Collection, Iterable, Sequence
from typing import Any

from lightning.pytorch import LightningModule
from lightning.pytorch.utilities import rank_zero_info
from torch import nn

from tl_integrations.capture.selector import Selector
from tl_integrations.capture.statistics import DEFAULT, NAMES
from tl_integrations.errors import (
    OptionError,
    ScheduleError,
    SelectorError,
    UnsupportedModelError,
    near_names,
)
from tl_integrations.schedule.algebra import Schedule

WHICH = ("first", "last", "all")
"""Which of several forwards of one step."""


def known(option: str, values: Sequence[Any], allowed: Collection[str]) -> list[Any]:
    """The values, each of which must be one of those allowed.

    Raises:
        OptionError: naming the option, the value and what is allowed.
    """
    for value in values:
        if value not in allowed:
            near = near_names(str(value), allowed)
            raise OptionError(f"{option} is {value!r}. {near}Use one of {', '.join(map(repr, allowed))}.")
    return list(values)


def whole(option: str, value: Any, least: int = 0) -> int:
    """A whole number of at least `least`.

    Raises:
        OptionError: for anything else, also for a bool.
    """
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        raise OptionError(f"{option} is {value!r}. Give a whole number of at least {least}.")
    return value


def selection_of(save: Any) -> Selector | str | list[Any] | None:
    """What a user selects, where one can tell before there is a model.

    Raises:
        SelectorError: for what cannot be a selection.
    """
    if save is None or isinstance(save, str) or callable(save):
        return save  # type: ignore[no-any-return]
    if not isinstance(save, Iterable):
        raise SelectorError(
            f"save={save!r} selects nothing. Give a selector such as tl.func('relu'), a text, or a list."
        )
    return list(save)


def statistics_of(wanted: bool | str | Sequence[str]) -> tuple[str, ...]:
    """Names of statistics: the default set for True.

    Raises:
        OptionError: for a name that is no statistic.
    """
    if isinstance(wanted, bool):
        return DEFAULT if wanted else ()
    return tuple(known("statistics", [wanted] if isinstance(wanted, str) else list(wanted), NAMES))


def bins_of(wanted: bool | int) -> int:
    """Bins of a histogram: 64 for True, 0 for none.

    Raises:
        OptionError: for a number below 0.
    """
    return 64 * wanted if isinstance(wanted, bool) else whole("histograms", wanted)


def ranks_of(wanted: Sequence[int] | str | None) -> frozenset[int] | None:
    """Ranks that keep records; None for all, rank 0 when nothing was said.

    Raises:
        OptionError: for what is no rank.
    """
    if isinstance(wanted, str):
        known("ranks", [wanted], ("all",))
        return None
    return frozenset(whole("ranks", rank) for rank in wanted or [0])


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


def refuse_by_rank(schedule: Schedule, module: LightningModule, world_size: int, *, compiled: bool) -> None:
    """Say that ranks which step together cannot each decide by their own loss or clock.

    A captured step arms every rank, and a compiled or sharded model waits for the others when only one does.

    Raises:
        ScheduleError: if the schedule looks at the loss, values or the clock, there are several ranks, and
            the model is compiled or sharded.
    """
    sharded = any(hasattr(parameter, "to_local") for parameter in module.parameters()) or any(
        type(each).__name__ == "FullyShardedDataParallel" for each in module.modules()
    )
    if world_size > 1 and schedule.reactive and (compiled or sharded):
        raise ScheduleError(
            f"{schedule!r} looks at each rank's own loss or clock, and the {world_size} ranks of a "
            f"{'sharded' if sharded else 'compiled'} model must capture the same steps. "
            "Use a schedule of the step, such as every(100)."
        )
