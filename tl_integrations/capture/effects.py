"""What a torch function does beside its result: nothing, write into an argument, hand out its memory."""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol

import torch
from torch import Tensor

from tl_integrations.capture.labels import function_name

_OP_PROPERTIES = frozenset({"T", "mT", "H", "mH", "data", "real", "imag"})
_NOT_OPS = frozenset(
    """
    size dim stride numel nelement ndimension is_contiguous storage_offset element_size data_ptr
    storage untyped_storage _typed_storage get_device item tolist numpy __array__ __dlpack__
    __dlpack_device__ backward register_hook register_post_accumulate_grad_hook retain_grad
    requires_grad_ __len__ __repr__ __hash__ __format__ __bool__ __int__ __float__ __index__
    __complex__ __contains__ __deepcopy__ __reduce_ex__ __reduce__ __setstate__ is_same_size
    share_memory_ set_ record_stream sym_size _to_python has_names
    """.split()
)
_ESCAPES = frozenset(
    """
    data numpy __array__ __dlpack__ data_ptr untyped_storage storage _typed_storage share_memory_ set_ resize_
    __cuda_array_interface__ __array_interface__ const_data_ptr mutable_data_ptr _storage __reduce_ex__
    """.split()
)
_INPLACE_OPERATORS = frozenset(
    f"__i{name}__"
    for name in "add sub mul div truediv floordiv mod and or xor pow lshift rshift matmul".split()
)
# Functions that write, though their operator schema does not say so: running statistics, renormalised weights
# and noise, never their first argument. Of those with a Python signature a switch tells when.
_HIDDEN_WRITES = frozenset(
    """
    batch_norm instance_norm native_batch_norm cudnn_batch_norm miopen_batch_norm embedding embedding_bag
    rrelu_with_noise _embedding_bag fused_moving_avg_obs_fake_quant _fused_moving_avg_obs_fq_helper
    """.split()
)


_HIDDEN_SWITCHES = ("training", "max_norm")
# Functions whose result never lies on the memory of an argument, unless they write into it. A schema does not
# say so: `dropout` and `contiguous` may return their argument, `unsafe_chunk` a part of it.
FRESH = frozenset(
    """
    linear bilinear conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d
    batch_norm layer_norm group_norm instance_norm rms_norm embedding
    relu relu6 gelu silu mish elu selu celu leaky_relu hardtanh hardswish hardsigmoid softplus softsign tanh
    sigmoid logsigmoid tanhshrink prelu softmax log_softmax softmin scaled_dot_product_attention
    matmul mm bmm addmm baddbmm add sub mul div truediv radd rmul rsub pow exp log sqrt rsqrt neg sin cos
    sum mean var std amax amin cumsum cat stack where
    cross_entropy mse_loss l1_loss nll_loss avg_pool1d avg_pool2d avg_pool3d
    """.split()
)


@dataclass(frozen=True, slots=True)
class Effects:
    """What is known of a function before it runs."""

    is_op: bool
    """Its result is an activation; properties such as `shape` and conversions such as `item` are not."""
    touches: bool
    """It always writes into arguments or hands out their memory."""
    touches_from: int
    """Position of the first argument that it may touch."""
    switch: str
    """Parameter whose true value makes it write; empty: it has none."""
    switch_position: int
    """That parameter's position, or -1."""
    fresh: bool
    """Its result lies on memory of its own, unless it writes into its first argument."""


@lru_cache(maxsize=4096)
def effects_of(func: Callable[..., Any]) -> Effects:
    """Classify a function by its name, its signature and its operator schemas; once per process."""
    raw = getattr(func, "__name__", "")
    name = function_name(func)
    is_op = name in _OP_PROPERTIES if raw == "__get__" else raw not in ("__set__", "__delete__")
    is_op = is_op and name not in _NOT_OPS and not name.startswith("is_")
    hidden = name in _HIDDEN_WRITES
    switch, position = _switch(func, _HIDDEN_SWITCHES if hidden else ("inplace",))
    return Effects(
        is_op=is_op,
        touches=name in _ESCAPES or raw == "__set__" or _writes(name) or (hidden and position < 0),
        touches_from=1 if hidden else 0,
        switch=switch,
        switch_position=position,
        fresh=raw != "__get__" and name.removeprefix("__").removesuffix("__") in FRESH and _is_torchs(func),
    )


def _is_torchs(func: Callable[..., Any]) -> bool:
    """Whether a function is torch's own: another library's of the same name may return what it likes."""
    return (getattr(func, "__module__", None) or "torch").partition(".")[0] == "torch"


def _writes(name: str) -> bool:
    if name in _INPLACE_OPERATORS or name == "__setitem__":
        return True
    return (name.endswith("_") and not name.endswith("__")) or _schema_writes(name)


def _schema_writes(name: str) -> bool:
    schemas = torch._C._jit_get_schemas_for_operator(f"aten::{name}")
    return any(
        argument.alias_info is not None and argument.alias_info.is_write and not argument.kwarg_only
        for schema in schemas
        for argument in schema.arguments
    )


def _switch(func: Callable[..., Any], switches: tuple[str, ...]) -> tuple[str, int]:
    try:
        names = list(inspect.signature(func).parameters)
    except (TypeError, ValueError):
        return "", -1
    return next(((switch, names.index(switch)) for switch in switches if switch in names), ("", -1))


class Touching(Protocol):
    """A function's effects, under the names of `Effects`."""

    touches: bool
    switch: str
    switch_position: int


def touches_now(effects: Touching, args: tuple[Any, ...], kwargs: dict[str, Any] | None) -> bool:
    """Whether this call writes into arguments: always, by its switch, or because `out=` was given."""
    if effects.touches:
        return True
    if kwargs and (kwargs.get("out") is not None or kwargs.get(effects.switch)):
        return True
    return 0 <= effects.switch_position < len(args) and bool(args[effects.switch_position])


def flat_tensors(values: Any) -> list[Tensor]:
    """Tensors among call arguments, entering lists and tuples."""
    found: list[Tensor] = []
    for value in values:
        if isinstance(value, Tensor):
            found.append(value)
        elif isinstance(value, tuple | list):
            found.extend(flat_tensors(value))
    return found
