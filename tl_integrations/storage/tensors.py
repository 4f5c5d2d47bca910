"""Tensors to bytes and back, bit for bit: one fixed table of dtypes; the rest is refused by name.

safetensors files know fewer dtypes than torch. A dtype that they lack travels in a *carrier*: complex
numbers as two floats in a last dimension of 2, the rarer float8 kinds as bytes. The index keeps the dtype.
"""

import math
from collections.abc import Sequence
from ctypes import Array, c_ubyte
from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor

from tl_integrations.errors import BundleCorruptError, UnsupportedTensorError

Elements: TypeAlias = "Array[c_ubyte]"


@dataclass(frozen=True, slots=True, kw_only=True)
class Carrier:
    """How a dtype stands in a safetensors header."""

    code: str
    """Dtype name of the safetensors format."""
    itemsize: int
    """Bytes of one element of the tensor."""
    pair: bool = False
    """Elements are pairs: the header's shape ends with an extra 2."""


CARRIERS: dict[torch.dtype, Carrier] = {
    torch.bool: Carrier(code="BOOL", itemsize=1),
    torch.uint8: Carrier(code="U8", itemsize=1),
    torch.int8: Carrier(code="I8", itemsize=1),
    torch.int16: Carrier(code="I16", itemsize=2),
    torch.uint16: Carrier(code="U16", itemsize=2),
    torch.int32: Carrier(code="I32", itemsize=4),
    torch.uint32: Carrier(code="U32", itemsize=4),
    torch.int64: Carrier(code="I64", itemsize=8),
    torch.uint64: Carrier(code="U64", itemsize=8),
    torch.float16: Carrier(code="F16", itemsize=2),
    torch.bfloat16: Carrier(code="BF16", itemsize=2),
    torch.float32: Carrier(code="F32", itemsize=4),
    torch.float64: Carrier(code="F64", itemsize=8),
    torch.float8_e4m3fn: Carrier(code="F8_E4M3", itemsize=1),
    torch.float8_e5m2: Carrier(code="F8_E5M2", itemsize=1),
    torch.float8_e4m3fnuz: Carrier(code="U8", itemsize=1),
    torch.float8_e5m2fnuz: Carrier(code="U8", itemsize=1),
    torch.complex32: Carrier(code="F16", itemsize=4, pair=True),
    torch.complex64: Carrier(code="F32", itemsize=8, pair=True),
    torch.complex128: Carrier(code="F64", itemsize=16, pair=True),
}
# Newer than the oldest torch that is supported.
CARRIERS |= {
    dtype: Carrier(code="U8", itemsize=1)
    for name in ("float8_e8m0fnu", "float4_e2m1fn_x2")
    if isinstance(dtype := getattr(torch, name, None), torch.dtype)
}

DTYPE_NAMES = {dtype: str(dtype).removeprefix("torch.") for dtype in CARRIERS}
_BY_NAME = {name: dtype for dtype, name in DTYPE_NAMES.items()}
CODE_SIZES = {
    "BOOL": 1,
    "U8": 1,
    "I8": 1,
    "F8_E4M3": 1,
    "F8_E5M2": 1,
    "I16": 2,
    "U16": 2,
    "F16": 2,
    "BF16": 2,
}
CODE_SIZES |= {"I32": 4, "U32": 4, "F32": 4, "I64": 8, "U64": 8, "F64": 8, "C64": 8}
_MOST_DIMENSIONS = 64
_MOST_BYTES = 1 << 62


_PLAIN_TYPES = frozenset({Tensor, torch.nn.Parameter, torch.nn.Buffer})
_is_wrapped = torch._C._functorch.is_functorch_wrapped_tensor


def refusal(name: str, reason: object) -> UnsupportedTensorError:
    """The error for a record's tensor that has no plain bytes."""
    return UnsupportedTensorError(
        f"The tensor of {name!r} cannot be stored: {reason}. Leave it out of `save=`, "
        "or keep its statistics only (`tensors=False`)."
    )


def unstorable(tensor: Tensor) -> str:
    """Why a tensor has no plain bytes; empty when it has them."""
    if _is_wrapped(tensor):
        return "it lives inside a functorch transform (vmap, grad) and cannot leave it"
    if tensor.is_nested:
        return "it is a nested tensor"
    if tensor.layout is not torch.strided:
        return f"its layout is {str(tensor.layout).removeprefix('torch.')}"
    if tensor.dtype not in CARRIERS:
        return f"its dtype is {str(tensor.dtype).removeprefix('torch.')}"
    if tensor.is_meta:
        return "it is on the meta device and has no values"
    if type(tensor) not in _PLAIN_TYPES:
        return f"it is a {type(tensor).__name__}, whose values are not one plain tensor"
    return ""


def all_storable(tensors: Sequence[Tensor]) -> bool:
    """Whether `unstorable` would be empty for each, in half the time of asking it."""
    return (
        set(map(type, tensors)) <= _PLAIN_TYPES
        and not any(map(_is_wrapped, tensors))
        and not any([tensor.is_nested or tensor.is_meta for tensor in tensors])
        and {tensor.layout for tensor in tensors} <= {torch.strided}
        and {tensor.dtype for tensor in tensors} <= CARRIERS.keys()
    )


def to_host(tensors: Sequence[Tensor | None]) -> list[Tensor | None]:
    """The same values on the CPU, without a graph; several of one GPU cross together.

    Copies are queued on the current stream, the one that made the values, and waited for once per device.
    """
    if all([tensor is None or (tensor.is_cpu and not tensor.requires_grad) for tensor in tensors]):
        return list(tensors)
    moved: list[Tensor | None] = []
    devices: set[torch.device] = set()
    for tensor in tensors:
        if tensor is None or (tensor.is_cpu and not tensor.requires_grad):
            moved.append(tensor)
        elif tensor.is_cpu:
            moved.append(tensor.detach())
        elif tensor.is_cuda:
            values = plain(tensor)
            target = torch.empty(values.shape, dtype=values.dtype, pin_memory=True)
            moved.append(target.copy_(values, non_blocking=True))
            devices.add(tensor.device)
        else:
            moved.append(tensor.detach().cpu())
    for device in devices:
        torch.cuda.current_stream(device).synchronize()
    return moved


def reduce(tensor: Tensor, dtype: torch.dtype | None, samples: int | None) -> Tensor:
    """The first `samples` entries along the first dimension, floats cast to `dtype`; None changes nothing."""
    if samples is not None and tensor.dim() > 0:
        tensor = tensor[:samples]
    if dtype is not None and tensor.dtype.is_floating_point and tensor.dtype is not dtype:
        tensor = tensor.to(dtype)
    return tensor


def all_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether `plain` would give each back as it is, in half the time of asking it."""
    return all(
        [
            tensor.is_contiguous() and not (tensor.requires_grad or tensor.is_conj() or tensor.is_neg())
            for tensor in tensors
        ]
    )


def plain(tensor: Tensor) -> Tensor:
    """The same values in row-major order, conjugation and negation carried out, without a graph."""
    if not tensor.requires_grad and tensor.is_contiguous() and not (tensor.is_conj() or tensor.is_neg()):
        return tensor
    return tensor.detach().resolve_conj().resolve_neg().contiguous()


def elements_kind(nbytes: int) -> type[Elements]:
    """Arrays of so many bytes that lie somewhere."""
    return c_ubyte * nbytes


def address_of(tensor: Tensor) -> int:
    """Where a plain CPU tensor's elements lie, for `elements_kind(nbytes).from_address`.

    An array made so takes half the time of a view through numpy, and a fifth for the dtypes that numpy lacks.

    Raises:
        RuntimeError: if the tensor has no memory, as one whose storage was given back.
    """
    address = tensor.data_ptr()
    if not address and tensor.nbytes:
        raise RuntimeError("it has elements but no memory")
    return address


def from_bytes(content: bytearray, dtype: torch.dtype, shape: Sequence[int]) -> Tensor:
    """The tensor whose elements `content` holds; it owns that memory.

    Args:
        content: Exactly the bytes that dtype and shape ask for.
    """
    if not content:
        return torch.empty(tuple(shape), dtype=dtype)
    return torch.frombuffer(content, dtype=torch.uint8).view(dtype).reshape(tuple(shape))


def dtype_named(name: object) -> torch.dtype:
    """The dtype of a name in an index: one of the table, never looked up anywhere else.

    Raises:
        BundleCorruptError: for a name that is not in the table.
    """
    dtype = _BY_NAME.get(name) if isinstance(name, str) else None
    if dtype is None:
        raise BundleCorruptError(
            f"Unknown dtype {str(name)[:40]!r} in an index; known: {', '.join(_BY_NAME)}."
        )
    return dtype


def bytes_of(dtype: torch.dtype, shape: object) -> int:
    """How many bytes a tensor takes, computed before anything is allocated.

    Raises:
        BundleCorruptError: if the shape is not a short list of sizes, or absurdly large.
    """
    if not isinstance(shape, list | tuple) or len(shape) > _MOST_DIMENSIONS:
        raise BundleCorruptError(f"Not a shape: {str(shape)[:80]}.")
    if any(type(size) is not int or not 0 <= size < _MOST_BYTES for size in shape):
        raise BundleCorruptError(f"A shape with a size that no tensor has: {str(shape)[:80]}.")
    nbytes = math.prod(shape) * CARRIERS[dtype].itemsize
    if nbytes >= _MOST_BYTES:
        raise BundleCorruptError(f"A shape that no disk could hold: {str(shape)[:80]}.")
    return nbytes


def carrier_shape(dtype: torch.dtype, shape: Sequence[int]) -> list[int]:
    """The shape that the safetensors header states."""
    return [*shape, 2] if CARRIERS[dtype].pair else list(shape)
