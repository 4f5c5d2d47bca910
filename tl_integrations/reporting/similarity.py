"""How alike two tensors are: relative change, cosine, linear centred kernel alignment."""

import math

import torch
from torch import Tensor


def relative_change(a: Tensor, b: Tensor) -> float:
    """`norm(b - a) / norm(a)`: 0 for equal tensors, infinite where only `a` is 0, NaN for other NaNs."""
    if torch.allclose(a, b, rtol=0, atol=0, equal_nan=True):
        return 0.0
    distance, size = _norm(b - a), _norm(a)
    return math.inf if size == 0 else distance / size


def cosine(a: Tensor, b: Tensor) -> float:
    """Cosine of the angle between all values of `a` and `b`; NaN where one of them is 0."""
    scale = _norm(a) * _norm(b)
    if scale == 0:
        return math.nan
    return float(torch.dot(a.flatten(), b.flatten())) / scale


def linear_cka(a: Tensor, b: Tensor) -> float:
    """Linear centred kernel alignment over the first dimension (Kornblith et al. 2019, arXiv 1905.00414).

    1 for representations that are equal up to rotation and one scale; widths may differ. It is biased
    towards 1 where there are fewer samples than features.

    Args:
        a: Shape `(samples, ...)`.
        b: Shape `(samples, ...)`, of the same samples in the same order.

    Returns: Between 0 and 1; NaN for fewer than two samples, or where all samples are alike.
    """
    if a.dim() == 0 or b.dim() == 0 or len(a) != len(b) or len(a) < 2:
        return math.nan
    x, y = (_centred(each) for each in (a, b))
    if len(a) < max(x.shape[1], y.shape[1]):
        # The same number from samples x samples, which is the smaller side here.
        left, right = x @ x.T, y @ y.T
        shared, scale = float((left * right).sum()), _norm(left) * _norm(right)
    else:
        shared, scale = _norm(y.T @ x) ** 2, _norm(x.T @ x) * _norm(y.T @ y)
    return shared / scale if scale > 0 else math.nan


def as_comparable(value: Tensor) -> Tensor:
    """The values as float64 on the host; complex ones with a last dimension of real and imaginary part."""
    value = value.detach()
    if value.layout is not torch.strided:
        value = value.to_dense()
    if value.is_quantized:
        value = value.dequantize()
    if value.is_complex():
        value = torch.view_as_real(value.resolve_conj())
    return value.to("cpu", torch.float32 if value.dtype.itemsize < 4 else value.dtype).double()


def _norm(value: Tensor) -> float:
    return float(torch.linalg.vector_norm(value))


def _centred(value: Tensor) -> Tensor:
    flat = value.reshape(len(value), -1)
    return flat - flat.mean(dim=0, keepdim=True)
