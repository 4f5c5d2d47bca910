"""FLOPs and MACs: formulas against torch's own counter, and what is not known stays unknown."""

import pytest
from handmade_logs import Sketch

from tl_integrations.capture.flops import Cost, cost
from tl_integrations.capture.oplog import TENSOR, OpLine, PlainValue

Shape = tuple[int, ...]


def cost_of(
    func_name: str,
    *shapes: Shape,
    out: Shape,
    args: tuple[PlainValue, ...] | None = None,
    kwargs: tuple[tuple[str, PlainValue], ...] = (),
) -> Cost:
    s = Sketch()
    reads = tuple(s.source("input", shape) for shape in shapes)
    given = args if args is not None else (TENSOR,) * len(reads)
    line = OpLine(func_name=func_name, reads=reads, shape=out, args=given, kwargs=kwargs)
    s.add(line)
    return cost(line, s.lines)


@pytest.mark.parametrize(
    ("func_name", "shapes", "out", "flops", "macs"),
    [
        ("linear", ((2, 32), (16, 32), (16,)), (2, 16), 2 * 2 * 32 * 16 + 32, 2 * 32 * 16),
        ("linear", ((2, 3, 32), (16, 32)), (2, 3, 16), 2 * 6 * 32 * 16, 6 * 32 * 16),
        ("matmul", ((5, 2, 3), (3, 4)), (5, 2, 4), 2 * 5 * 2 * 3 * 4, 5 * 2 * 3 * 4),
        ("__matmul__", ((3,), (5, 3, 4)), (5, 4), 2 * 5 * 3 * 4, 5 * 3 * 4),
        ("__rmatmul__", ((3, 4), (2, 3)), (2, 4), 2 * 2 * 3 * 4, 2 * 3 * 4),
        ("matmul", ((7, 1, 2, 3), (5, 3, 4)), (7, 5, 2, 4), 2 * 35 * 24, 35 * 24),
        ("dot", ((6,), (6,)), (), 12, 6),
        ("mv", ((4, 6), (6,)), (4,), 48, 24),
        ("addmm", ((4,), (2, 3), (3, 4)), (2, 4), 2 * 24 + 8, 24),
        ("conv2d", ((1, 4, 8, 8), (6, 2, 3, 3), (6,)), (1, 6, 8, 8), 2 * 384 * 18 + 384, 384 * 18),
        ("conv_transpose1d", ((1, 4, 5), (4, 3, 2)), (1, 3, 6), 2 * 20 * 6, 20 * 6),
        (
            "scaled_dot_product_attention",
            ((2, 3, 5, 8), (2, 3, 7, 8), (2, 3, 7, 4)),
            (2, 3, 5, 4),
            6300,
            2520,
        ),
        ("relu_", ((2, 3),), (2, 3), 6, 0),
        ("__iadd__", ((2, 3), (3,)), (2, 3), 6, 0),
        ("__radd__", ((2, 3),), (2, 3), 6, 0),
        ("__invert__", ((2, 3),), (2, 3), 6, 0),
        ("softmax", ((2, 3),), (2, 3), 30, 0),
        ("view", ((2, 3),), (6,), 0, 0),
        ("__getitem__", ((2, 3),), (3,), 0, 0),
        ("sum", ((2, 3),), (), 6, 0),
        ("max", ((2, 3),), (3,), 6, 0),
        ("max", ((2, 3), (3,)), (2, 3), 6, 0),
    ],
)
def test_a_formula_counts_what_it_says(
    func_name: str, shapes: tuple[Shape, ...], out: Shape, flops: int, macs: int
) -> None:
    assert cost_of(func_name, *shapes, out=out) == Cost(flops, macs)


def test_literal_arguments_count() -> None:
    image, pooled = (1, 2, 8, 8), (1, 2, 4, 4)
    assert cost_of("max_pool2d", image, out=pooled, args=(TENSOR, 2)).flops == 32 * 4
    assert cost_of("avg_pool2d", image, out=pooled, args=(TENSOR, (2, 3))).flops == 32 * 6
    assert cost_of("dropout", (2, 3), out=(2, 3), args=(TENSOR, 0.5, False)).flops == 0
    assert cost_of("dropout", (2, 3), out=(2, 3), kwargs=(("training", True),)).flops == 12
    assert cost_of("linear", (2, 3), (4, 3), out=(2, 4), args=(TENSOR, TENSOR, None)).flops == 48
    assert cost_of("einsum", (2, 3), (3, 4), out=(2, 4), args=("ij,jk->ik", TENSOR, TENSOR)) == Cost(48, 24)
    assert cost_of("einsum", (2,), (3,), out=(2, 3), args=("i,j->ij", TENSOR, TENSOR)) == Cost(6, 0)


def test_an_argument_by_name_counts_like_one_by_position() -> None:
    by_name = cost_of("linear", (2, 3), (4, 3), out=(2, 4), args=(TENSOR,), kwargs=(("weight", TENSOR),))
    assert by_name == Cost(48, 24)


@pytest.mark.parametrize("func_name", ["lstm", "topk", "fft_fft", "my_kernel", ""])
def test_what_has_no_formula_is_unknown_not_zero(func_name: str) -> None:
    assert cost_of(func_name, (2, 3), out=(2, 3)) == Cost(None, None)


@pytest.mark.parametrize(
    "func_name", ["linear", "conv2d", "scaled_dot_product_attention", "einsum", "matmul"]
)
def test_a_call_whose_operands_are_not_seen_is_unknown(func_name: str) -> None:
    assert cost_of(func_name, (2, 3), out=(2, 3), args=(TENSOR,)).flops is None


def test_a_call_with_several_results_is_counted_once() -> None:
    s = Sketch()
    x = s.input((2, 3))
    first = OpLine(func_name="max", reads=(x,), shape=(2,), args=(TENSOR, 1), first=1, path=".values")
    s.add(first)
    s.add(first._replace(path=".indices"))
    assert [cost(line, s.lines).flops for line in s.lines[1:]] == [6, 0]


def test_sources_and_outputs_cost_nothing() -> None:
    s = Sketch()
    log = s.output(s.input())
    assert [cost(line, log.lines) for line in log.lines] == [Cost(0, 0), Cost(0, 0)]
