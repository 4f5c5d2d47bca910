"""How dtypes, devices, sizes, generators and small tensors are written."""

from typing import Any

import torch

from tl_integrations.language.encoding import Encoded, Encoder, Opaque, Where, add_recipe
from tl_integrations.language.recipes.references import reference

LIMIT = 64
"""Elements of a tensor that still counts as a setting."""


def _constant(value: Any, encoder: Encoder, where: Where) -> Encoded:
    """dtype, layout and memory_format: their text is their import path."""
    return reference(str(value))


def _device(value: torch.device, encoder: Encoder, where: Where) -> Encoded:
    return {"_target_": "torch.device", "_args_": [str(value)]}


def _size(value: torch.Size, encoder: Encoder, where: Where) -> Encoded:
    return {"_target_": "torch.Size", "_convert_": "all", "_args_": [encoder.items(value, where)]}


def _generator(value: torch.Generator, encoder: Encoder, where: Where) -> Encoded:
    seed = value.initial_seed()
    fresh = torch.Generator(device=value.device).manual_seed(seed)
    if not torch.equal(fresh.get_state(), value.get_state()):
        raise Opaque("numbers were drawn from it already; pass a fresh one, or the seed")
    node = {"_target_": "torch.Generator", "device": str(value.device)}
    return {"_target_": "torch.Generator.manual_seed", "_args_": [node, seed]}


def _tensor(value: torch.Tensor, encoder: Encoder, where: Where) -> Encoded:
    _refuse_unwritable(value)
    dtype = reference(str(value.dtype))
    if value.numel() == 0:
        return {"_target_": "torch.empty", "_convert_": "all", "size": list(value.shape), "dtype": dtype}
    data = value.tolist()
    body = encoder.items(data, where) if isinstance(data, list) else encoder.value(data, where)
    return {"_target_": "torch.tensor", "_convert_": "all", "data": body, "dtype": dtype}


def _refuse_unwritable(value: torch.Tensor) -> None:
    cure = "pass a file path or what builds it"
    if type(value) is not torch.Tensor or value.requires_grad:
        raise Opaque(f"a tensor that is trained belongs in a checkpoint; {cure}")
    if value.device.type != "cpu" or value.layout is not torch.strided or value.is_quantized:
        raise Opaque(f"only plain CPU tensors are written; {cure}")
    if value.numel() > LIMIT:
        raise Opaque(f"a tensor of {value.numel()} elements is not a setting (at most {LIMIT}); {cure}")
    try:
        value.tolist()
    except (RuntimeError, TypeError, NotImplementedError):
        raise Opaque(f"elements of dtype {value.dtype} have no exact text; {cure}") from None


for _kind in (torch.dtype, torch.layout, torch.memory_format):
    add_recipe(_kind, _constant)
add_recipe(torch.device, _device)
add_recipe(torch.Size, _size)
add_recipe(torch.Generator, _generator)
add_recipe(torch.Tensor, _tensor, subclasses=True)
