"""A quiet Trainer on the CPU for the callback tests."""

from collections.abc import Sequence
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer, seed_everything
from torch import nn
from toy_models import LitNet, random_loader

HOOK_DICTS = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")


def quiet_trainer(callbacks: Sequence[Callback] = (), **options: Any) -> Trainer:
    """A Trainer that prints nothing and writes nothing unless told to."""
    defaults: dict[str, Any] = {
        "max_epochs": 1,
        "accelerator": "cpu",
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
    }
    return Trainer(callbacks=list(callbacks), **(defaults | options))


def fit(
    callbacks: Sequence[Callback] = (), model: LightningModule | None = None, batches: int = 8, **options: Any
) -> LightningModule:
    """Train from a fixed seed; returns the trained module."""
    seed_everything(7, verbose=False)
    module = model if model is not None else LitNet()
    resume = options.pop("ckpt_path", None)
    quiet_trainer(callbacks, **options).fit(module, random_loader(batches), ckpt_path=resume)
    return module


def leftovers(module: nn.Module) -> list[str]:
    """Everything of a capture that could still hang on a module or its children."""
    found = []
    for name, child in module.named_modules():
        found += [f"{name}.{kind}" for kind in HOOK_DICTS if getattr(child, kind)]
        found += [f"{name}.{key}" for key in ("forward", "training_step", "log") if _is_bracketed(child, key)]
    return found


def _is_bracketed(module: nn.Module, method: str) -> bool:
    """Whether something else than the class's own method stands on the instance."""
    standing = module.__dict__.get(method)
    if isinstance(module, torch._dynamo.OptimizedModule):
        return False
    return standing is not None and getattr(standing, "__func__", None) is not getattr(type(module), method)
