"""Tensors that lie on several processes: this one's part, and words for where the whole lies.

Known by what they offer (`to_local`, `placements`), so that `torch.distributed` is not loaded for them.
"""

from typing import Any

from torch import Tensor
from torch.nn import Parameter

_WHOLE = (Tensor, Parameter)


def local_part(tensor: Tensor) -> Tensor:
    """This process's part of a distributed tensor; any other tensor is its own."""
    if type(tensor) in _WHOLE or not _is_distributed(tensor):
        return tensor
    distributed: Any = tensor
    part: Tensor = distributed.to_local()
    # A part that another process still sends is waited for.
    return part.wait() if hasattr(part, "wait") else part


def placement_of(tensor: Tensor) -> str:
    """How a distributed tensor lies over its mesh; empty for any other."""
    if type(tensor) in _WHOLE or not _is_distributed(tensor):
        return ""
    distributed: Any = tensor
    mesh = " x ".join(map(str, distributed.device_mesh.shape))
    return f"{', '.join(map(repr, distributed.placements))} on a mesh of {mesh}"


def _is_distributed(tensor: Tensor) -> bool:
    return hasattr(tensor, "to_local") and hasattr(tensor, "placements")
