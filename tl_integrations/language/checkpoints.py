"""Build a model again from a checkpoint that carries its config."""

from collections.abc import Iterable
from os import PathLike
from typing import Any

from tl_integrations.errors import NoConfigError
from tl_integrations.language.building import instantiate

CHECKPOINT_KEY = "tl_integrations_config"
"""Where a checkpoint holds the config of its model, as plain data."""


def load_from_checkpoint(
    path: str | PathLike[str], *, allow: Iterable[str] | None = None, map_location: Any = "cpu"
) -> Any:
    """The model of a checkpoint, built from the config inside it, with its weights.

    The file is read with `weights_only=True`, and the config runs only targets that are trusted.

    Args:
        path: A checkpoint that `TraceCallback` or `ConfigCallback` wrote its config into.
        allow: Further targets that may run, exact names or patterns such as `"my_app.*"`.
        map_location: Where the weights go, as in `torch.load`.
    Returns: The module, its state dict loaded strictly.
    Raises:
        NoConfigError: if the checkpoint carries no config.
        UntrustedTargetError: if its config names targets that may not run here.
    """
    import torch

    checkpoint = torch.load(path, map_location=map_location, weights_only=True)
    config = checkpoint.get(CHECKPOINT_KEY)
    if config is None:
        raise NoConfigError(
            f"{str(path)!r} carries no config (it holds {', '.join(sorted(checkpoint))}). "
            "Train with TraceCallback or ConfigCallback, and a model whose class is `@L.configurable`."
        )
    model = instantiate(config, allow=allow)
    model.load_state_dict(checkpoint["state_dict"])
    return model
