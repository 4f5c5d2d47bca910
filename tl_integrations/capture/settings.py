"""What a recorder's options mean: checks, selectors, how tensors are kept."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from typing import Literal

import torch
from torch import Tensor

from tl_integrations.capture.events import Event
from tl_integrations.capture.keeping import Keeping
from tl_integrations.capture.module_tree import ModuleTree
from tl_integrations.capture.protocols import Outcome
from tl_integrations.capture.selector import Always, Selector
from tl_integrations.capture.selector_text import as_selector
from tl_integrations.capture.statistics import Summariser
from tl_integrations.errors import OptionError, SelectorError
from tl_integrations.options import CaptureOptions, CaptureSpec, SummaryOptions

Save = Selector | str | Sequence[str] | Callable[[Event], bool | CaptureSpec | None]
OnForwardError = Literal["raise", "attach_partial", "return_partial"]
OnPredicateError = Literal["auto", "accumulate", "fail_fast"]


def selector_of(save: Save | None, default_op: bool | CaptureSpec) -> Selector:
    if save is not None:
        return as_selector(save)
    if not default_op:
        raise SelectorError(
            "Nothing would be captured: save=None and default_op=False. Give save=tl.func('relu') or another "
            "selector, or default_op=True for every op."
        )
    return Always()


def gradient_selector(save_grads: bool | Save | None, tree: ModuleTree) -> Selector | None:
    if save_grads is None or isinstance(save_grads, bool):
        return None
    return as_selector(save_grads).bind(tree)


def outcome_of(error: BaseException) -> Outcome:
    if isinstance(error, Exception):
        return Outcome(status="failed", reason=repr(error))
    return Outcome(status="interrupted", reason=repr(error))


def plain_spec(
    default_op: bool | CaptureSpec, backward_ready: bool, capture: CaptureOptions
) -> CaptureSpec | None:
    """How a tensor is kept that is taken without a CaptureSpec of its own."""
    connected = backward_ready or capture.lookback_payload_policy == "grad_connected"
    if not isinstance(default_op, CaptureSpec):
        return CaptureSpec(keep_grad=True) if connected else None
    if connected and not default_op.keep_grad:
        raise OptionError(
            "backward_ready=True keeps tensors on the autograd graph, and default_op has keep_grad=False. "
            "Leave one of them out."
        )
    return default_op


def check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise OptionError(f"{name}={value!r} is none of {', '.join(map(repr, choices))}.")


@contextmanager
def with_seed(seed: int) -> Iterator[None]:
    devices = list(range(torch.cuda.device_count())) if torch.cuda.is_available() else []
    with torch.random.fork_rng(devices=devices):
        torch.manual_seed(seed)
        yield


def keeping_of(
    tree: ModuleTree,
    *,
    payloads: bool,
    keep: str,
    gradients: bool,
    save_grads: bool | Save | None,
    summaries: SummaryOptions,
    default_op: bool | CaptureSpec,
    backward_ready: bool,
    capture: CaptureOptions,
    transform: Callable[[Tensor], Tensor] | None,
) -> Keeping:
    """How tensors are kept, from a recorder's options."""
    plain = plain_spec(default_op, backward_ready, capture)
    chosen = gradient_selector(save_grads, tree)
    listens = gradients or bool(save_grads)
    summarised = bool(summaries.statistics or summaries.histogram_bins)
    if chosen is None and transform is None and not summarised:
        return _plain_keeping(payloads, keep == "alias", listens, default_op, plain)
    return Keeping(
        payloads=payloads,
        aliases=keep == "alias",
        gradients=listens,
        gradients_of=chosen,
        summariser=Summariser(summaries) if summarised else None,
        default=default_op,
        plain=plain,
        transform=transform,
    )


@cache
def _plain_keeping(
    payloads: bool, aliases: bool, gradients: bool, default: bool | CaptureSpec, plain: CaptureSpec | None
) -> Keeping:
    return Keeping(payloads=payloads, aliases=aliases, gradients=gradients, default=default, plain=plain)
