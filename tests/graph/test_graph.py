"""A trace built from a log: layers, ops, modules, look-up by every kind of key, views."""

from pathlib import Path

import pytest
import torch
from handmade_logs import Sketch

from tl_integrations.capture.events import Record
from tl_integrations.capture.graph import Trace, build
from tl_integrations.capture.layers import Layer
from tl_integrations.capture.ops import Op
from tl_integrations.capture.protocols import Outcome
from tl_integrations.errors import AmbiguousRecordError, PayloadUnavailableError, RecordLookupError


class Held:
    """A payload that just lies in memory."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor
        self.nbytes = tensor.nbytes

    def read(self) -> torch.Tensor:
        return self.tensor


def recurrent() -> Sketch:
    """`attn(3 x relu(fc(x)))`, `fc` three times."""
    s = Sketch("Rec")
    x = s.input()
    for _ in range(3):
        x = s.op("relu", s.linear(x, "fc"))
    s.linear(x, "attn")
    return s


def recurrent_trace(saved: float | None = None) -> Trace:
    s = recurrent()
    log = s.output(len(s.lines) - 1)
    lines = [i for i, line in enumerate(log.lines) if line.kind == "op"]
    records = (
        [] if saved is None else [Record(line=i, payload=Held(torch.full((2, 4), saved + i))) for i in lines]
    )
    return build(log, records)


def test_layers_are_rolled_and_ops_are_not() -> None:
    trace = recurrent_trace()
    assert trace.layer_labels == ["input_1", "linear_1_1", "relu_1_2", "linear_2_3", "output_1"]
    assert [op.label for op in trace.ops] == [
        "input_1",
        "linear_1_1:1",
        "relu_1_2:1",
        "linear_1_1:2",
        "relu_1_2:2",
        "linear_1_1:3",
        "relu_1_2:3",
        "linear_2_3",
        "output_1",
    ]
    assert (trace.num_layers, trace.num_ops, trace.num_tensors, trace.num_params) == (5, 7, 9, 40)
    assert trace.is_recurrent and len(trace) == 9


def test_parents_and_children_name_passes_where_there_are_several() -> None:
    trace = recurrent_trace()
    assert trace.ops["linear_1_1:2"].parents == ("relu_1_2:1",)
    assert trace.ops["relu_1_2:3"].children == ("linear_2_3",)
    assert trace.layers["linear_1_1"].parents == ("input_1", "relu_1_2")
    assert trace.layers["relu_1_2"].children == ("linear_1_1", "linear_2_3")
    assert trace["linear_2_3"].parents == ("relu_1_2",) == trace.layers["linear_2_3"].parents


def test_a_parent_used_twice_stands_twice() -> None:
    s = Sketch()
    x = s.op("add", s.input())
    trace = build(s.output(s.op("__mul__", x, x)))
    assert trace.ops["mul_1_2"].parents == ("add_1_1", "add_1_1")
    assert trace.ops["add_1_1"].children == ("mul_1_2",)


@pytest.mark.parametrize(
    ("key", "label"),
    [
        ("linear_2_3", "linear_2_3"),
        ("linear_1_1:2", "linear_1_1:2"),
        ("linear_2", "linear_2_3"),
        ("linear_1:3", "linear_1_1:3"),
        ("relu_1_3_raw", "relu_1_2:1"),
        ("linear_1_3_raw", None),
        ("attn", "linear_2_3"),
        ("fc:2", "linear_1_1:2"),
        ("attn:1", "linear_2_3"),
        ("input", "input_1"),
        ("self", "linear_2_3"),
        ("", "linear_2_3"),
        (0, "input_1"),
        (-1, "output_1"),
    ],
)
def test_a_key_names_one_op(key: str | int, label: str | None) -> None:
    trace = recurrent_trace()
    if label is None:
        assert key not in trace
        return
    found = trace[key]
    assert (found.label if isinstance(found, Op) else found.op.label) == label
    assert not isinstance(key, str) or key in trace


def test_a_label_gives_the_layer_and_a_slice_a_list() -> None:
    trace = recurrent_trace()
    layer = trace["linear_1_1"]
    assert isinstance(layer, Layer) and layer.num_passes == 3
    assert [op.label for op in trace[1:3]] == ["linear_1_1:1", "relu_1_2:1"]
    assert trace.ops[2] in trace and layer in trace and 3 not in trace


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("fc", "'fc:1'"),
        ("linear", "linear_1_1, linear_2_3"),
        ("relu_1_2:9", "3 passes"),
        ("fc:9", "3 times"),
        ("liner_2_3", "linear_2_3"),
        ("atn", "attn"),
        ("nosuch:2", "layer_labels"),
    ],
)
def test_a_key_that_names_none_or_several_says_what_there_is(key: str, message: str) -> None:
    trace = recurrent_trace()
    assert key not in trace
    with pytest.raises(RecordLookupError, match=message) as error:
        trace[key]
    assert repr(key) in str(error.value)


def test_a_layer_of_several_passes_has_no_one_tensor() -> None:
    layer = recurrent_trace(0.0).layers["linear_1_1"]
    with pytest.raises(AmbiguousRecordError, match="linear_1_1:1"):
        _ = layer.out
    assert layer.has_saved_activation and layer.ops[1].out.shape == (2, 4)


def test_what_was_not_saved_names_the_op_and_the_fix() -> None:
    trace = recurrent_trace()
    assert trace.saved_layers == [] and not trace["linear_2_3"].has_saved_activation
    with pytest.raises(PayloadUnavailableError, match=r"'linear_2_3'.*save="):
        _ = trace["linear_2_3"].out


def test_an_output_shares_the_payload_of_its_op() -> None:
    trace = recurrent_trace(1.0)
    assert trace["output_1"].out is trace["linear_2_3"].out
    assert trace.saved_layers == ["linear_1_1", "relu_1_2", "linear_2_3", "output_1"]
    assert trace.saved_nbytes == 7 * 32 and len(trace.captured().records) == 7 < trace.num_saved_ops


def test_modules_know_their_calls_ops_and_parameters() -> None:
    trace = recurrent_trace()
    assert [module.address for module in trace.modules] == ["", "fc", "attn"]
    fc = trace.modules["fc"]
    assert [call.label for call in fc.calls] == ["fc:1", "fc:2", "fc:3"]
    assert (fc.num_params, fc.class_name, fc.layers) == (20, "Linear", ("linear_1_1",))
    assert fc.flops_forward == 3 * (2 * 2 * 4 * 4 + 8) == trace.layers["linear_1_1"].flops_forward
    assert trace.modules[""].children == ("fc", "attn") and trace.modules[0].num_params == 40
    assert trace.module_calls["fc:2"].outputs == (trace.ops["linear_1_1:2"],)
    assert trace.ops["linear_1_1:2"].modules == ("fc:2",)
    assert trace.total_flops_forward == 4 * 72 + 3 * 8 and trace.total_macs_forward == 4 * 32


def test_nested_calls_hold_the_ops_of_calls_inside() -> None:
    s = Sketch()
    outer = s.call("encoder")
    inner = s.call("encoder.fc", parent=outer)
    x = s.op("tanh", s.op("relu", s.input(), call=inner), call=outer)
    s.returns(outer, x)
    trace = build(s.output(s.op("neg", x)))
    assert [op.label for op in trace.modules["encoder"].ops] == ["relu_1_1", "tanh_1_2"]
    assert trace.ops["relu_1_1"].modules == ("encoder:1", "encoder.fc:1")
    assert trace.ops["relu_1_1"].address == "encoder.fc" and trace.ops["neg_1_3"].modules == ()
    assert trace["encoder"].label == "tanh_1_2" and trace["encoder:1"].label == "tanh_1_2"


def test_an_unknown_formula_shows_in_the_totals() -> None:
    s = Sketch()
    trace = build(s.output(s.op("my_kernel", s.op("relu", s.input()))))
    assert trace.unknown_flops == ["my_kernel"] and trace.total_flops_forward == 8
    assert trace["mykernel_1_2"].flops_forward is None


def test_compare_finds_the_first_op_by_value_shape_and_graph() -> None:
    assert recurrent_trace(0.0).compare(recurrent_trace(0.0)) is None
    found = recurrent_trace(0.0).compare(recurrent_trace(1.0))
    assert found is not None and (found.label, found.what, found.max_abs) == ("linear_1_1:1", "value", 1.0)
    a, b = Sketch(), Sketch()
    one = build(a.output(a.op("relu", a.input())))
    two = build(b.output(b.op("tanh", b.input())))
    found = one.compare(two)
    assert found is not None and found.what == "graph" and "tanh" in str(found)


def test_summary_lists_modules_with_their_totals() -> None:
    text = recurrent_trace().summary()
    assert "Rec: 7 ops in 5 layers, 40 parameters, 312 FLOPs" in text
    row = next(line for line in text.splitlines() if " fc " in line)
    assert "Linear" in row and "216" in row and "20" in row and "2x4" in row and "96 B" in row
    assert str(recurrent_trace()) == text


def test_to_pandas_has_one_row_per_op() -> None:
    frame = recurrent_trace().to_pandas()
    assert list(frame.label) == [op.label for op in recurrent_trace().ops]
    assert frame.set_index("label").loc["linear_2_3", "num_params"] == 20


def test_to_networkx_has_an_edge_for_every_read() -> None:
    s = Sketch()
    x = s.op("add", s.input())
    graph = build(s.output(s.op("mul", x, x))).to_networkx()
    assert sorted(graph.edges()) == [
        ("add_1_1", "mul_1_2"),
        ("add_1_1", "mul_1_2"),
        ("input_1", "add_1_1"),
        ("mul_1_2", "output_1"),
    ]
    rolled = recurrent_trace().to_networkx(rolled=True)
    assert set(rolled) == set(recurrent_trace().layer_labels) and rolled.has_edge("relu_1_2", "linear_1_1")


def test_dot_draws_modules_as_clusters_and_passes_as_one_box() -> None:
    text = recurrent_trace().to_dot()
    assert (
        'subgraph "cluster fc"' in text and '"linear_1_1" -> "relu_1_2"' in text and "linear_1_1 x3" in text
    )
    unrolled = recurrent_trace().to_dot(rolled=False)
    assert '"relu_1_2:1" -> "linear_1_1:2"' in unrolled and 'subgraph "cluster fc:2"' in unrolled


def test_a_big_graph_is_folded_until_it_fits() -> None:
    s = Sketch()
    x = s.input()
    for block in range(20):
        call = s.call(f"blocks.{block}")
        for part in range(5):
            x = s.op(f"f{part}", x, call=s.call(f"blocks.{block}.{part}", parent=call))
    trace = build(s.output(x))
    assert trace.to_dot(max_nodes=200).count("shape=box3d") == 0
    assert trace.to_dot(max_nodes=30).count("shape=box3d") == 20
    assert "more" in trace.to_dot(max_nodes=10)


def test_draw_writes_dot_text_and_a_picture_only_with_graphviz(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = recurrent_trace()
    assert Path(trace.draw(str(tmp_path / "net.dot"))).read_text() == trace.to_dot()
    monkeypatch.setattr("shutil.which", lambda _: None)
    assert trace.draw(str(tmp_path / "net.svg")) == str(tmp_path / "net.dot")


def test_names_cannot_break_the_picture() -> None:
    s = Sketch()
    trace = build(s.output(s.op("relu", s.input(), module='a"]; evil [x="\n\\')))
    assert 'a\\"]; evil [x=\\"\\n\\\\' in trace.to_dot() and trace.to_dot().count("\n") < 20


def test_reprs_are_bounded_and_say_how_it_ended() -> None:
    trace = recurrent_trace(0.0)
    assert repr(trace) == "<Trace of Rec: 7 ops in 5 layers, 8 saved>"
    assert repr(trace.ops["linear_1_1:2"]) == "<Op linear_1_1:2: float32[2, 4] in fc, saved>"
    s = Sketch()
    x = s.input()
    for step in range(2_000):
        x = s.op("add", x, literals=(step,))
    halted = build(s.output(x), outcome=Outcome(status="halted", reason="enough"))
    assert halted.halted and halted.halt_frontier == "add_2000_2000" and halted.halt_reason == "enough"
    assert all(len(repr(v)) < 400 for v in (halted, halted.ops, halted.layers, halted.modules, halted.ops[0]))


def test_source_text_is_read_only_from_an_unchanged_file(tmp_path: Path) -> None:
    file = tmp_path / "net.py"
    file.write_text("import torch\ny = x.relu()\n")
    s = Sketch()
    s.op("relu", s.input())
    s.lines[-1] = s.lines[-1]._replace(file=str(file), line=2)
    stamp = (str(file), file.stat().st_mtime_ns, file.stat().st_size)
    s.modules[0] = s.modules[0]._replace(files=(stamp,))
    trace = build(s.output(1))
    assert trace["relu_1_1"].ops[0].source == "y = x.relu()"
    file.write_text("changed = True\ny = 1\n")
    assert trace["relu_1_1"].ops[0].source is None


def test_func_config_names_literals_where_the_signature_is_known() -> None:
    s = Sketch()
    x = s.linear(s.input(), "fc")
    x = s.op("dropout", x, literals=(0.5, True))
    trace = build(s.output(s.op("roll", x, literals=(1,), kwargs=(("dims", 0),))))
    assert trace["linear_1_1"].func_config == {"in_features": 4, "out_features": 4}
    assert trace["dropout_1_2"].func_config == {"p": 0.5, "training": True}
    assert trace["roll_1_3"].func_config == {"arg1": 1, "dims": 0}
