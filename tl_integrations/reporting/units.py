"""Units of a layer: what only its tensor, and not its summary, can tell."""

import torch
from torch import Tensor


def dead_fraction(value: Tensor) -> dict[str, float]:
    """Share of the units that are 0 for every sample, as the statistic `dead_fraction`.

    Units are channels of pictures `(batch, channels, height, width)`, else the last dimension. Nothing is
    said of fewer than 8 samples or positions, where a unit may be 0 by chance.
    """
    if value.dim() < 2 or value.numel() == 0 or value.layout is not torch.strided:
        return {}
    units = 1 if value.dim() == 4 else value.dim() - 1
    alive = (value.detach() != 0).movedim(units, 0).flatten(1)
    if alive.shape[1] < 8:
        return {}
    return {"dead_fraction": 1 - alive.any(dim=1).float().mean().item()}
