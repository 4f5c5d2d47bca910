"""Recurrence: which ops are passes of one layer, and what the layers are called."""

import time
from collections.abc import Callable

import pytest
from handmade_logs import Sketch, names

from tl_integrations.capture.grouping import layer_labels
from tl_integrations.capture.oplog import GraphLog


def labels_of(log: GraphLog) -> str:
    return names(*layer_labels(log), log)


def loop(body: Callable[[Sketch, int, int], int], times: int = 3) -> GraphLog:
    s = Sketch()
    x = s.input()
    for step in range(times):
        x = body(s, x, step)
    return s.output(x)


def test_a_module_called_three_times_is_one_layer_with_the_relu_after_it() -> None:
    s = Sketch()
    x = s.input()
    for _ in range(3):
        x = s.op("relu", s.linear(x, "fc"))
    log = s.output(s.linear(x, "attn"))
    assert labels_of(log) == (
        "linear_1_1:1 relu_1_2:1 linear_1_1:2 relu_1_2:2 linear_1_1:3 relu_1_2:3 linear_2_3:1"
    )


def test_sources_and_outputs_have_one_number_and_parameters_none() -> None:
    s = Sketch()
    x, b = s.input(), s.source("buffer", (4,))
    y = s.op("add", s.linear(x, "fc"), b)
    labels, passes = layer_labels(s.output(y, s.op("add", y, s.source("constant"))))
    assert [label for label in labels if label] == [
        "input_1",
        "buffer_1",
        "linear_1_1",
        "add_1_2",
        "buffer_2",
        "add_2_3",
        "output_1",
        "output_2",
    ]
    assert labels.count("") == 2 and set(passes) == {1}


def test_a_loop_that_carries_a_residual_is_one_layer_per_op() -> None:
    log = loop(lambda s, x, _: s.op("tanh", s.op("add", s.op("relu", s.linear(x, "fc")), x)))
    assert labels_of(log).startswith(
        "linear_1_1:1 relu_1_2:1 add_1_3:1 tanh_1_4:1 linear_1_1:2 relu_1_2:2 add_1_3:2"
    )
    assert labels_of(log).endswith("tanh_1_4:3")


def test_a_loop_without_parameters_is_found_when_it_carries() -> None:
    assert labels_of(loop(lambda s, x, _: s.op("relu", s.op("add", x, literals=(1.0,))))) == (
        "add_1_1:1 relu_1_2:1 add_1_1:2 relu_1_2:2 add_1_1:3 relu_1_2:3"
    )


def test_a_body_that_holds_one_function_twice_keeps_both_apart() -> None:
    def body(s: Sketch, x: int, _: int) -> int:
        return s.op("add", s.op("sin", s.op("add", x, literals=(1,))), literals=(1,))

    assert labels_of(loop(body)) == (
        "add_1_1:1 sin_1_2:1 add_2_3:1 add_1_1:2 sin_1_2:2 add_2_3:2 add_1_1:3 sin_1_2:3 add_2_3:3"
    )


def test_the_same_steps_side_by_side_are_no_loop() -> None:
    s = Sketch()
    q, k = s.linear(s.input(), "q"), s.linear(0, "k")
    a = s.op("cat", s.op("neg", q))
    b = s.op("cat", s.op("neg", k))
    assert labels_of(s.output(s.op("matmul", a, b))) == (
        "linear_1_1:1 linear_2_2:1 neg_1_3:1 cat_1_4:1 neg_2_5:1 cat_2_6:1 matmul_1_7:1"
    )


def test_one_function_three_times_in_a_row_is_no_loop_but_one_module_is() -> None:
    assert labels_of(loop(lambda s, x, _: s.op("relu", x))) == "relu_1_1:1 relu_2_2:1 relu_3_3:1"
    assert (
        labels_of(loop(lambda s, x, _: s.op("relu", x, module="act"))) == "relu_1_1:1 relu_1_1:2 relu_1_1:3"
    )


def test_one_activation_module_behind_two_layers_is_two_layers() -> None:
    s = Sketch()
    x = s.op("relu", s.linear(s.input(), "a"), module="act")
    log = s.output(s.op("relu", s.linear(x, "b"), module="act"))
    assert labels_of(log) == "linear_1_1:1 relu_1_2:1 linear_2_3:1 relu_2_4:1"


def test_arguments_that_change_from_pass_to_pass_keep_ops_apart() -> None:
    log = loop(lambda s, x, step: s.op("mul", s.linear(x, "fc"), literals=(step + 1,)))
    assert labels_of(log) == "linear_1_1:1 mul_1_2:1 linear_1_1:2 mul_2_3:1 linear_1_1:3 mul_3_4:1"


def test_a_cell_over_time_steps_groups_all_but_the_slices() -> None:
    s = Sketch()
    x, h = s.input((2, 3, 4)), s.op("zeros", shape=(2, 4))
    for t in range(3):
        step = s.linear(s.op("__getitem__", x, literals=(t,)), "w")
        gate = s.op("sigmoid", s.op("add", step, s.linear(h, "u")))
        h = s.op("mul", gate, h)
    found = labels_of(s.output(h)).split()
    assert [name for name in found if name.startswith("getitem")] == [
        "getitem_1_2:1",
        "getitem_2_8:1",
        "getitem_3_9:1",
    ]
    assert found[-5:] == ["linear_1_3:3", "linear_2_4:3", "add_1_5:3", "sigmoid_1_6:3", "mul_1_7:3"]


def test_alternating_branches_are_passes_of_two_layers() -> None:
    log = loop(lambda s, x, t: s.op("relu" if t % 2 else "tanh", s.linear(x, "fc")), times=4)
    assert labels_of(log) == (
        "linear_1_1:1 tanh_1_2:1 linear_1_1:2 relu_1_3:1 linear_1_1:3 tanh_1_2:2 linear_1_1:4 relu_1_3:2"
    )


def test_a_relu_before_a_loop_is_not_in_it_and_ops_without_parameters_after_it_are() -> None:
    s = Sketch()
    x = s.op("relu", s.input())
    for _ in range(2):
        x = s.op("relu", s.linear(x, "fc"))
    assert labels_of(s.output(x)) == "relu_1_1:1 linear_1_2:1 relu_2_3:1 linear_1_2:2 relu_2_3:2"
    s = Sketch()
    x = s.input()
    for _ in range(2):
        x = s.op("relu", s.op("add", x))
    assert labels_of(s.output(s.op("add", x))) == "add_1_1:1 relu_1_2:1 add_1_1:2 relu_1_2:2 add_1_1:3"


def test_two_reads_of_one_tensor_are_two_layers() -> None:
    s = Sketch()
    x = s.input()
    log = s.output(s.op("add", s.op("relu", x), s.op("relu", x)))
    assert labels_of(log) == "relu_1_1:1 relu_2_2:1 add_1_3:1"


def test_a_weight_tied_between_two_modules_makes_two_layers() -> None:
    s = Sketch()
    weight = s.parameter("embed.weight")
    x = s.op("embedding", s.input(), weight, module="embed")
    log = s.output(s.op("linear", x, weight, module="head"))
    assert labels_of(log) == "embedding_1_1:1 linear_1_2:1"


def test_a_shared_module_is_one_layer_at_any_shape() -> None:
    s = Sketch()
    x = s.linear(s.input((3, 4)), "fc", (3, 4))
    log = s.output(s.linear(s.op("mean", x, shape=(1, 4)), "fc", (1, 4)))
    assert labels_of(log) == "linear_1_1:1 mean_1_2:1 linear_1_1:2"


def test_nested_loops_are_passes_of_one_layer() -> None:
    def body(s: Sketch, x: int, _: int) -> int:
        x = s.linear(x, "outer")
        for _ in range(2):
            x = s.op("relu", s.op("add", x, literals=(1,)))
        return x

    found = labels_of(loop(body)).split()
    assert found[:5] == ["linear_1_1:1", "add_1_2:1", "relu_1_3:1", "add_1_2:2", "relu_1_3:2"]
    assert found[-1] == "relu_1_3:6"


@pytest.mark.parametrize("period", [1, 7, 50])
def test_time_to_group_grows_with_the_number_of_ops_only(period: int) -> None:
    def seconds(count: int) -> float:
        log = loop(lambda s, x, t: s.op(f"f{t % period}", x), times=count)
        start = time.perf_counter()
        layer_labels(log)
        return time.perf_counter() - start

    assert min(seconds(8_000) for _ in range(3)) < 30 * min(seconds(1_000) for _ in range(3))
