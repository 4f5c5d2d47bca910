"""How a model is called: what `input_args` means, and which models cannot be watched."""

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from tl_integrations.capture.module_tree import ModuleTree, module_tree, unwrapped
from tl_integrations.errors import UnsupportedModelError

_SCRIPTED = (torch.jit.ScriptModule, torch.jit.ScriptFunction)


def call_form(
    input_args: Any, input_kwargs: Mapping[str, Any] | None
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments of the forward.

    A tuple or list holds the positional arguments; anything else is the only one. A single argument that is
    itself a tuple or list is written inside another: `((a, b),)`.
    """
    args = tuple(input_args) if isinstance(input_args, tuple | list) else (input_args,)
    return args, dict(input_kwargs or {})


def explain_call(
    error: BaseException, model: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> None:
    """Add to a TypeError of a forward how arguments are written, when they do not fit its signature."""
    if not isinstance(error, TypeError):
        return
    forward = type(unwrapped(model)).forward
    try:
        inspect.signature(forward).bind(model, *args, **kwargs)
    except TypeError:
        error.add_note(
            f"The forward was called with {len(args)} positional arguments. A tuple or list is taken as the "
            "positional arguments; a single argument that is itself a tuple or list is written as ((a, b),)."
        )
    except ValueError:
        return


def check_watchable(model: Any) -> ModuleTree:
    """The modules of a model, unless it cannot be watched.

    Raises:
        UnsupportedModelError: for what is no module, for scripted models and for replicating DataParallel.
    """
    if not isinstance(model, nn.Module):
        raise UnsupportedModelError(
            f"A model is a torch.nn.Module; this is a {type(model).__name__}. Wrap a function in a module."
        )
    inner = unwrapped(model)
    if isinstance(inner, _SCRIPTED):
        raise UnsupportedModelError(
            f"{type(inner).__name__} runs inside TorchScript, where no function can be seen. "
            "Watch the eager model that it was made from."
        )
    tree = module_tree(model)
    if tree.refused is not None:
        raise UnsupportedModelError(tree.refused)
    return tree
