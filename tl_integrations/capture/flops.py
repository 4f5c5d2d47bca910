"""FLOPs and MACs of one op, from shapes and arguments alone. What has no formula here is unknown: None.

One multiply-accumulate is two FLOPs. Only contractions (products of matrices, convolutions, attention) have
MACs; their formulas are those of `torch.utils.flop_counter`, which counts them and nothing else, plus one
FLOP per element for a bias. Data movement is 0. Pointwise functions and reductions cost a fixed number of
FLOPs per element: arithmetic, comparisons and roundings 1, roots and powers 2, and for transcendental
functions the customary estimates that TorchLens also uses (exp, log, sin 8; tanh 6; sigmoid 4; gelu 14), so
that numbers of the two tools can be compared. A call with several results is counted once, at the first.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import NamedTuple, TypeAlias

from tl_integrations.capture.oplog import OpLine, PlainValue, is_tensor

Shape: TypeAlias = tuple[int, ...]


class Cost(NamedTuple):
    """What one call computes."""

    flops: int | None
    macs: int | None


UNKNOWN = Cost(None, None)
NOTHING = Cost(0, 0)


@dataclass(frozen=True, slots=True)
class TensorShape:
    """Stands where a tensor was among a call's arguments."""

    shape: Shape


class Call:
    """One call: its arguments with shapes in place of tensors."""

    def __init__(self, line: OpLine, lines: Sequence[OpLine]) -> None:
        shapes = iter([TensorShape(lines[read].shape) for read in line.reads])
        self.out: tuple[int, ...] = line.shape
        self.args: list[object] = [_filled(arg, shapes) for arg in line.args]
        self.kwargs: dict[str, object] = {name: _filled(arg, shapes) for name, arg in line.kwargs}

    def get(self, position: int, name: str, default: object = None) -> object:
        """An argument by position or by name."""
        return self.args[position] if position < len(self.args) else self.kwargs.get(name, default)

    def shape(self, position: int, name: str = "") -> Shape | None:
        found = self.get(position, name)
        return found.shape if isinstance(found, TensorShape) else None


def cost(line: OpLine, lines: Sequence[OpLine]) -> Cost:
    """FLOPs and MACs of the call that made `line`, which is one of `lines`."""
    if line.kind != "op":
        return NOTHING
    if line.first >= 0 and lines[line.first] is not line:
        return NOTHING
    name = _formula_name(line.func_name)
    if name in _MOVES:
        return NOTHING
    if name in _PER_ELEMENT:
        return Cost(_PER_ELEMENT[name] * prod(line.shape), 0)
    formula = _FORMULAS.get(name)
    return formula(Call(line, lines)) if formula else UNKNOWN


def _formula_name(func_name: str) -> str:
    """The name under which a formula stands: `add` for `add_`, `__add__`, `__iadd__` and `__radd__`."""
    name = func_name.strip("_")
    if func_name.startswith("__") and name not in _KNOWN and name[1:] in _KNOWN and name[0] in "ir":
        return name[1:]
    return name


def _filled(value: PlainValue, shapes: Iterator[TensorShape]) -> object:
    if isinstance(value, tuple):
        return tuple([_filled(v, shapes) for v in value])
    return next(shapes, None) if is_tensor(value) else value


def _contraction(macs: int, bias: int = 0) -> Cost:
    return Cost(2 * macs + bias, macs)


def _matmul(call: Call) -> Cost:
    return _product(call.shape(0, "input"), call.shape(1, "other"))


def _rmatmul(call: Call) -> Cost:
    return _product(call.shape(1, "other"), call.shape(0, "input"))


def _product(a: Shape | None, b: Shape | None) -> Cost:
    """`(..., m, k) @ (..., k, n)`; a vector has m or n of 1."""
    if not a or not b:
        return UNKNOWN
    rows, columns = prod(a[-2:-1]), (b[-1] if len(b) > 1 else 1)
    return _contraction(prod(_broadcast(a[:-2], b[:-2])) * rows * a[-1] * columns)


def _broadcast(a: Shape, b: Shape) -> Shape:
    width = max(len(a), len(b))
    a, b = (1,) * (width - len(a)) + a, (1,) * (width - len(b)) + b
    return tuple([y if x == 1 else x for x, y in zip(a, b)])


def _addmm(call: Call) -> Cost:
    a, b = call.shape(1, "mat1"), call.shape(2, "mat2")
    return _with_bias(_product(a, b), prod(call.out))


def _baddbmm(call: Call) -> Cost:
    a, b = call.shape(1, "batch1"), call.shape(2, "batch2")
    return _with_bias(_product(a, b), prod(call.out))


def _with_bias(product: Cost, bias: int) -> Cost:
    return product if product.flops is None else Cost(product.flops + bias, product.macs)


def _linear(call: Call) -> Cost:
    weight, bias = call.shape(1, "weight"), call.shape(2, "bias")
    if weight is None:
        return UNKNOWN
    return _contraction(prod(call.out) * weight[-1], prod(call.out) if bias is not None else 0)


def _bilinear(call: Call) -> Cost:
    weight = call.shape(2, "weight")
    if weight is None or call.shape(3, "bias") is not None:
        return UNKNOWN
    return _contraction(prod(call.out) * weight[1] * weight[2])


def _convolution(call: Call) -> Cost:
    """Every output element is a product over `in_channels / groups` and the kernel."""
    weight, bias = call.shape(1, "weight"), call.shape(2, "bias")
    if weight is None:
        return UNKNOWN
    return _contraction(prod(call.out) * prod(weight[1:]), prod(call.out) if bias is not None else 0)


def _transposed_convolution(call: Call) -> Cost:
    """Every input element meets the kernel of each output channel of its group."""
    x, weight, bias = call.shape(0, "input"), call.shape(1, "weight"), call.shape(2, "bias")
    if x is None or weight is None:
        return UNKNOWN
    return _contraction(prod(x) * prod(weight[1:]), prod(call.out) if bias is not None else 0)


def _attention(call: Call) -> Cost:
    """Scores, softmax with scaling (6 per score), and the weighted sum of values."""
    q, k, v = call.shape(0, "query"), call.shape(1, "key"), call.shape(2, "value")
    if q is None or k is None or v is None or min(len(q), len(k), len(v)) < 2:
        return UNKNOWN
    scores = prod(q[:-1]) * k[-2]
    macs = scores * (q[-1] + v[-1])
    return Cost(2 * macs + 6 * scores, macs)


def _multi_head_attention(call: Call) -> Cost:
    """`F.multi_head_attention_forward` with one joint input projection: the MACs of its five products.

    Its FLOPs beyond the products depend on masks and averaging, and stay unknown.
    """
    q, k, joint = call.shape(0, "query"), call.shape(1, "key"), call.shape(5, "in_proj_weight")
    extended = call.get(7, "bias_k"), call.get(8, "bias_v"), call.get(9, "add_zero_attn", False)
    if q is None or k is None or joint is None or any(extended):
        return UNKNOWN
    width, targets, sources = q[-1], prod(q[:-1]), prod(k[:-1])
    products = 2 * targets * width * width + 2 * sources * width * width
    return Cost(None, products + 2 * targets * k[0] * width)


def _einsum(call: Call) -> Cost:
    """Two operands with plain axes: the product of all axis sizes."""
    equation, *rest = call.args
    operands = rest[0] if len(rest) == 1 and isinstance(rest[0], tuple) else rest
    if not isinstance(equation, str) or len(operands) != 2 or "." in equation:
        return UNKNOWN
    terms, _, result = equation.replace(" ", "").partition("->")
    sizes: dict[str, int] = {}
    for term, operand in zip(terms.split(","), operands):
        if not isinstance(operand, TensorShape) or len(set(term)) != len(operand.shape):
            return UNKNOWN
        sizes.update({axis: max(size, sizes.get(axis, 1)) for axis, size in zip(term, operand.shape)})
    if not result or set(result) >= set(sizes):
        return Cost(prod(call.out), 0) if result else UNKNOWN
    return _contraction(prod(sizes.values()))


def _per_input_element(flops: int) -> Callable[[Call], Cost]:
    def formula(call: Call) -> Cost:
        x = call.shape(0, "input")
        return UNKNOWN if x is None else Cost(flops * prod(x), 0)

    return formula


def _max_or_min(call: Call) -> Cost:
    """A reduction, or elementwise between two tensors."""
    x, other = call.shape(0, "input"), call.shape(1, "other")
    if x is None:
        return UNKNOWN
    return Cost(prod(call.out) if other is not None else prod(x), 0)


def _pool(dimensions: int) -> Callable[[Call], Cost]:
    """One per element of every window."""

    def formula(call: Call) -> Cost:
        size = call.get(1, "kernel_size")
        sizes = size if isinstance(size, tuple) and len(size) > 1 else (size,) * dimensions
        sizes = sizes * dimensions if len(sizes) == 1 else sizes
        window = [s for s in sizes if isinstance(s, int)]
        return Cost(prod(call.out) * prod(window), 0) if len(window) == dimensions else UNKNOWN

    return formula


def _dropout(call: Call) -> Cost:
    """A draw and a product per element; nothing outside of training."""
    training = call.get(2, "training", True)
    return NOTHING if training is False else Cost(2 * prod(call.out), 0)


_MOVES = frozenset(
    """
    view view_as reshape reshape_as flatten unflatten ravel contiguous narrow t T mT H transpose permute
    adjoint swapaxes swapdims moveaxis movedim squeeze unsqueeze expand expand_as broadcast_to
    broadcast_tensors cat concat concatenate stack hstack vstack dstack column_stack row_stack block_diag
    chunk split split_with_sizes tensor_split hsplit vsplit dsplit unbind clone detach copy getitem setitem
    select index_select gather masked_select take take_along_dim scatter index_put index_copy index_fill
    fill fill_diagonal zero to cpu cuda float double half bfloat16 int long short byte char bool type
    type_as as_strided as_subclass repeat repeat_interleave tile roll rot90 flip fliplr flipud diagonal diag
    diag_embed diagflat tril triu select_scatter slice_scatter diagonal_scatter view_as_real view_as_complex
    real imag conj resolve_conj resolve_neg unfold pixel_shuffle pixel_unshuffle channel_shuffle meshgrid
    cartesian_prod atleast_1d atleast_2d atleast_3d pad requires_grad embedding one_hot tensor as_tensor
    scalar_tensor arange linspace zeros ones empty full eye zeros_like ones_like empty_like full_like
    new_zeros new_ones new_empty new_full new_tensor empty_strided
    """.split()
)

_PER_ELEMENT: Mapping[str, int] = {
    name: flops
    for flops, names in {
        1: """
            add sub subtract mul multiply div divide true_divide truediv floor_divide floordiv remainder
            fmod mod rsub neg negative pos positive abs absolute sign sgn signbit ceil floor round trunc
            frac fix reciprocal square clamp clamp_min clamp_max clip nan_to_num eq ne gt lt ge le greater
            greater_equal less less_equal equal not_equal isclose maximum minimum fmax fmin where
            masked_fill masked_scatter logical_and logical_or logical_not logical_xor bitwise_and bitwise_or
            bitwise_not bitwise_xor bitwise_left_shift bitwise_right_shift and or xor invert lshift rshift
            isnan isinf isfinite isneginf isposinf isreal relu relu6 threshold hardtanh leaky_relu rrelu
            prelu heaviside deg2rad rad2deg scatter_add scatter_reduce index_add index_reduce cumsum cumprod
            cummax cummin
            """,
        2: "pow float_power sqrt rsqrt copysign nextafter softshrink hardshrink",
        3: "addcdiv addcmul lerp hypot hardsigmoid softsign",
        4: "sigmoid expit hardswish interpolate grid_sample affine_grid",
        5: "silu logsigmoid softmax softmin batch_norm layer_norm rms_norm group_norm instance_norm",
        6: "tanh log_softmax",
        7: "tanhshrink",
        8: """
            exp exp2 expm1 log log2 log10 log1p sin cos tan asin acos atan arcsin arccos arctan atan2
            arctan2 sinh cosh asinh acosh atanh arcsinh arccosh arctanh erf erfc erfinv i0 i0e i1 i1e mish
            """,
        9: "elu celu softplus",
        10: "selu sinc xlogy xlog1py",
        12: "lgamma digamma polygamma mvlgamma logit",
        14: "gelu",
    }.items()
    for name in names.split()
}

_FORMULAS: Mapping[str, Callable[[Call], Cost]] = {
    **dict.fromkeys(("matmul", "mm", "bmm", "mv", "dot"), _matmul),
    "rmatmul": _rmatmul,
    "addmm": _addmm,
    "baddbmm": _baddbmm,
    "linear": _linear,
    "bilinear": _bilinear,
    **dict.fromkeys(("conv1d", "conv2d", "conv3d"), _convolution),
    **dict.fromkeys(("conv_transpose1d", "conv_transpose2d", "conv_transpose3d"), _transposed_convolution),
    "scaled_dot_product_attention": _attention,
    "multi_head_attention_forward": _multi_head_attention,
    "einsum": _einsum,
    **{f"{kind}_pool{d}d": _pool(d) for kind in ("max", "avg", "lp") for d in (1, 2, 3)},
    **{f"adaptive_{kind}_pool{d}d": _per_input_element(1) for kind in ("max", "avg") for d in (1, 2, 3)},
    **dict.fromkeys(("max", "min"), _max_or_min),
    **dict.fromkeys(
        """sum mean nanmean nansum prod amax amin aminmax argmax argmin any all count_nonzero logsumexp
        logcumsumexp nll_loss kl_div""".split(),
        _per_input_element(1),
    ),
    **dict.fromkeys(("norm", "vector_norm", "matrix_norm", "cosine_similarity"), _per_input_element(2)),
    **dict.fromkeys(("var", "std", "var_mean", "std_mean", "mse_loss", "l1_loss"), _per_input_element(3)),
    "cross_entropy": _per_input_element(6),
    **dict.fromkeys(("dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout"), _dropout),
}

_KNOWN = frozenset({*_MOVES, *_PER_ELEMENT, *_FORMULAS})
