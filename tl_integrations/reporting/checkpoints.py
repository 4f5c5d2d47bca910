"""Tensors of a checkpoint file by name, without running anything that it holds."""

import pickle
from collections.abc import Mapping
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from tl_integrations.errors import BundleCorruptError


def read_checkpoint(path: Path) -> Mapping[str, Tensor]:
    """Parameters and buffers by name, on the host.

    Args:
        path: A file of torch (a state dict, or a Lightning checkpoint with one) or of safetensors.

    Raises:
        BundleCorruptError: if it holds something else, or objects that only running code could read.
    """
    if path.suffix == ".safetensors":
        return load_file(path)
    try:
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, RuntimeError, EOFError) as error:
        raise BundleCorruptError(
            f"{path} cannot be read as plain tensors: {str(error).splitlines()[0]} "
            "Save `model.state_dict()`, or use a .safetensors file."
        ) from error
    tensors = content.get("state_dict", content) if isinstance(content, dict) else {}
    found = {str(name): value for name, value in tensors.items() if isinstance(value, Tensor)}
    if not found:
        raise BundleCorruptError(
            f"{path} holds no tensors by name. Give a state dict or a checkpoint with one."
        )
    return found
