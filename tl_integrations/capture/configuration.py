"""How a function was configured in one call: its arguments that are no tensors, by name where sure."""

import inspect
from collections.abc import Mapping, Sequence
from functools import cache

import torch
import torch.nn.functional as F

from tl_integrations.capture.oplog import OpLine, PlainValue, is_tensor

_CONVOLUTION = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TRANSPOSED = ("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation")
_BUILTIN: Mapping[str, tuple[str, ...]] = {
    **{f"conv{d}d": _CONVOLUTION for d in (1, 2, 3)},
    **{f"conv_transpose{d}d": _TRANSPOSED for d in (1, 2, 3)},
    "linear": ("input", "weight", "bias"),
    "flatten": ("input", "start_dim", "end_dim"),
    "transpose": ("input", "dim0", "dim1"),
    "unsqueeze": ("input", "dim"),
    "chunk": ("input", "chunks", "dim"),
    "cat": ("tensors", "dim"),
    "stack": ("tensors", "dim"),
    "softmax": ("input", "dim", "dtype"),
    "masked_fill": ("input", "mask", "value"),
    "scaled_dot_product_attention": ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale"),
}


def func_config(line: OpLine, lines: Sequence[OpLine]) -> dict[str, PlainValue]:
    """The literal arguments of a call, and the sizes of a linear layer or a convolution.

    Names come from the Python function's signature, or from a short list of functions with one signature;
    other positional arguments are `arg0`, `arg1`, ... because a C function may have several signatures.
    """
    names = _parameter_names(line.func_name)
    named = {names[i] if i < len(names) else f"arg{i}": v for i, v in enumerate(line.args)} | dict(
        line.kwargs
    )
    config = {name: value for name, value in named.items() if value is not None and not _is_tensor(value)}
    return {**_sizes(line, lines), **config}


def _is_tensor(value: PlainValue) -> bool:
    return is_tensor(value) or (isinstance(value, tuple) and any(_is_tensor(v) for v in value))


def _sizes(line: OpLine, lines: Sequence[OpLine]) -> dict[str, PlainValue]:
    if len(line.reads) < 2:
        return {}
    weight = lines[line.reads[1]].shape
    if line.func_name == "linear" and len(weight) == 2:
        return {"in_features": weight[1], "out_features": weight[0]}
    if line.func_name in ("conv1d", "conv2d", "conv3d") and len(weight) > 2:
        channels = lines[line.reads[0]].shape[1 - len(weight)]
        return {"in_channels": channels, "out_channels": weight[0], "kernel_size": weight[2:]}
    return {}


@cache
def _parameter_names(func_name: str) -> tuple[str, ...]:
    if func_name in _BUILTIN:
        return _BUILTIN[func_name]
    function = getattr(F, func_name, None) or getattr(torch.functional, func_name, None)
    if not inspect.isfunction(function):
        return ()
    parameters = inspect.signature(function).parameters.values()
    return tuple(p.name for p in parameters if p.kind is p.POSITIONAL_OR_KEYWORD)
