"""Traces of what models really do: several results, containers, buffers, writes, no inputs, failures."""

import gc
import weakref
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tl_integrations as tl
from tl_integrations.errors import SelectorError, UnknownNameError


class Fn(nn.Module):
    """A model that is one function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def labels(trace: tl.Trace) -> list[str]:
    return [op.label for op in trace.ops]


def test_without_save_every_tensor_is_kept_inputs_and_outputs_too() -> None:
    x = torch.randn(2, 3)
    trace = tl.trace(Fn(lambda x: x.relu() + 1), x)
    assert trace.saved_layers == trace.layer_labels == ["input_1", "relu_1_1", "add_1_2", "output_1"]
    assert torch.equal(trace["input_1"].out, x) and torch.equal(trace["output_1"].out, x.relu() + 1)
    assert not trace["add_1_2"].out.requires_grad


def test_every_result_of_a_call_is_an_op_with_its_path() -> None:
    trace = tl.trace(Fn(lambda x: x.max(1)[0] + x.chunk(2)[1].sum()), torch.randn(4, 3))
    found = [(op.label, op.path) for op in trace.ops if op.path and op.kind == "op"]
    assert found == [
        ("max_1_1", "[0]"),
        ("max_2_2", "[1]"),
        ("chunk_1_3", "[0]"),
        ("chunk_2_4", "[1]"),
    ]
    assert trace["max_2_2"].dtype == torch.int64 and trace["chunk_2_4"].out.shape == (2, 3)


class Pair(NamedTuple):
    first: Tensor
    second: Tensor


def test_containers_come_out_leaf_by_leaf_and_other_values_are_left_out() -> None:
    def forward(x: Tensor) -> dict[str, Any]:
        return {"pair": Pair(x + 1, x), "list": [x * 2, 3.0, None], "text": "t"}

    trace = tl.trace(Fn(forward), torch.randn(2))
    assert trace.output_layers == ["output_1", "output_2", "output_3"]
    assert [trace.ops[label].parents for label in trace.output_layers] == [
        ("add_1_1",),
        ("input_1",),
        ("mul_1_2",),
    ]
    assert all(trace.ops[label].path for label in trace.output_layers)


def test_containers_and_keywords_go_in_leaf_by_leaf() -> None:
    def forward(parts: list[Tensor], scale: Tensor, *, extra: dict[str, Tensor]) -> Tensor:
        return parts[0] * scale + parts[1] + extra["e"]

    x = [torch.randn(2) for _ in range(4)]
    trace = tl.trace(Fn(forward), ([x[0], x[1]], x[2]), {"extra": {"e": x[3]}})
    assert trace.input_layers == ["input_1", "input_2", "input_3", "input_4"]
    assert torch.equal(trace["input_4"].out, x[3])


def test_batch_norm_in_training_reads_buffers_once_and_counts_its_batches() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU())
    twin = nn.Sequential(nn.Linear(3, 3), nn.BatchNorm1d(3), nn.ReLU())
    twin.load_state_dict(model.state_dict())
    x = torch.randn(4, 3)
    trace = tl.trace(model, x)
    twin(x)
    assert [op.label for op in trace.ops if op.kind == "op"] == [
        "linear_1_1",
        "add_1_2",
        "batchnorm_1_3",
        "relu_1_4",
    ]
    assert trace["add_1_2"].op.is_inplace and trace["add_1_2"].address == "1"
    assert sum(op.is_buffer for op in trace.ops) == 3
    for name, buffer in model.named_buffers():
        assert torch.equal(buffer, twin.get_buffer(name)), name


def test_writes_in_place_are_ops_and_earlier_tensors_keep_their_values() -> None:
    def forward(x: Tensor) -> Tensor:
        y = x + 1
        y.mul_(2)
        y[0] = 0.0
        y.view(-1).add_(1)
        return F.relu(y, inplace=True)

    x = torch.ones(2, 2)
    trace = tl.trace(Fn(forward), x)
    assert [op.func_name for op in trace.ops if op.is_inplace] == ["mul_", "__setitem__", "add_", "relu"]
    assert trace["setitem_1_3"].parents == ("mul_1_2",) and trace["view_1_4"].parents == ("setitem_1_3",)
    assert torch.equal(trace["add_1_1"].out, torch.full((2, 2), 2.0))
    assert torch.equal(trace["mul_1_2"].out, torch.full((2, 2), 4.0))
    assert torch.equal(x, torch.ones(2, 2))


def test_a_tensor_from_a_factory_has_no_parents_and_a_constant_is_a_buffer() -> None:
    constant = torch.ones(2)
    trace = tl.trace(Fn(lambda x: torch.arange(2) * x + constant), torch.randn(2))
    assert trace["arange_1_1"].parents == () and trace["add_1_3"].parents == ("mul_1_2", "buffer_1")
    assert trace.ops["buffer_1"].kind == "constant" and trace.ops["buffer_1"].is_buffer


def test_an_identity_model_has_no_ops() -> None:
    trace = tl.trace(nn.Identity(), torch.randn(2))
    assert trace.layer_labels == ["input_1", "output_1"] and trace.num_ops == 0
    assert trace["output_1"].parents == ("input_1",) and trace.total_flops_forward == 0
    assert "0 ops" in trace.summary() and trace.to_dot()


def test_a_model_without_inputs_is_traced() -> None:
    class Prior(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.mean = nn.Parameter(torch.randn(3))
            self.unused = nn.Parameter(torch.randn(5))

        def forward(self, scale: float = 1.0) -> Tensor:
            return self.mean.exp() * scale

    trace = tl.trace(Prior())
    assert trace.layer_labels == ["exp_1_1", "mul_1_2", "output_1"] and trace.num_params == 8
    assert trace["exp_1_1"].parameters == ("mean",)
    assert tl.trace(Prior(), (2.0,)).num_ops == 2


def test_an_output_that_is_no_tensor_is_left_out() -> None:
    trace = tl.trace(Fn(lambda x: float(x.sum())), torch.randn(2))
    assert trace.output_layers == [] and trace["sum_1_1"].out.shape == ()


def test_a_shared_module_answers_under_each_of_its_names() -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(2, 2)
            self.b = self.a

        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = self.b(torch.relu(self.a(x)))
            return out

    trace = tl.trace(Tied(), torch.randn(1, 2))
    assert trace.modules["a"].aliases == ("b",) and trace.modules["b"].num_params == 6
    assert trace["b:2"].label == trace["a:2"].label == "linear_1_1:2"


def test_the_forward_runs_once_in_the_mode_that_holds_and_leaves_the_rng_alone() -> None:
    calls: list[bool] = []

    def forward(x: Tensor) -> Tensor:
        calls.append(torch.is_grad_enabled())
        return F.dropout(x, 0.5)

    x = torch.randn(100)
    torch.manual_seed(0)
    expected, after = F.dropout(x, 0.5), torch.rand(1)
    torch.manual_seed(0)
    with torch.no_grad():
        trace = tl.trace(Fn(forward), x)
    assert torch.equal(trace["dropout_1_1"].out, expected) and torch.equal(torch.rand(1), after)
    assert calls == [False]


def test_gradients_of_kept_tensors_come_with_the_callers_backward() -> None:
    seen: list[Tensor] = []
    model = Fn(lambda x: seen.append((x * 2).sum()) or seen[-1])
    trace = tl.trace(model, torch.randn(3, requires_grad=True), gradients=True)
    assert trace["mul_1_1"].grad is None
    seen[0].backward()
    assert torch.equal(trace["mul_1_1"].grad, torch.ones(3))


def test_a_halted_trace_holds_what_ran() -> None:
    trace = tl.trace(
        Fn(lambda x: (x + 1).relu().neg()), torch.ones(2), halt=lambda event: event.func_name == "relu"
    )
    assert trace.halted and trace.outcome.status == "halted" and trace.halt_frontier == "relu_1_2"
    assert trace.output_layers == [] and torch.equal(trace["relu_1_2"].out, torch.full((2,), 2.0))


def test_a_failed_forward_leaves_nothing_and_an_error_of_a_predicate_comes_as_it_is() -> None:
    def forward(x: Tensor) -> Tensor:
        return x.relu().view(7)

    model = nn.Sequential(nn.Linear(2, 2), Fn(forward))
    with pytest.raises(tl.errors.TraceCaptureError, match=r"RuntimeError.*partial_trace") as caught:
        tl.trace(model, torch.randn(1, 2))
    partial: Any = caught.value.partial_trace
    assert labels(partial) == ["input_1", "linear_1_1", "relu_1_2"] and "failed" in repr(partial)
    assert not hasattr(caught.value.__cause__, "partial_recording")
    assert not any("forward" in vars(module) for module in model.modules())
    with pytest.raises(ZeroDivisionError):
        tl.trace(model[0], torch.randn(1, 2), save=lambda event: 1 // 0)
    with pytest.raises(KeyboardInterrupt):
        tl.trace(Fn(lambda x: (_ for _ in ()).throw(KeyboardInterrupt())), torch.ones(1))


def test_positions_and_final_labels_are_kept_after_one_forward() -> None:
    calls: list[int] = []

    def forward(x: Tensor) -> Tensor:
        calls.append(1)
        return (x + 1).relu().neg()

    x = torch.ones(2)
    for save, kept in {
        "relu_1_2": ["relu_1_2"],
        ("neg_1_3",): ["neg_1_3", "output_1"],
        (-2,): ["neg_1_3"],
        (1, "relu_1"): ["add_1_1", "relu_1_2"],
    }.items():
        trace = tl.trace(Fn(forward), x, save=list(save) if isinstance(save, tuple) else save)
        assert trace.saved_layers == kept, save
    assert len(calls) == 4


@pytest.mark.parametrize("save", [["relu_1_3"], ["nosuch"], [9], ["relu_1_2:4"]], ids=str)
def test_a_name_that_matches_nothing_is_an_error(save: list[Any]) -> None:
    with pytest.raises(UnknownNameError, match=r"9|relu_1|nosuch"):
        tl.trace(Fn(lambda x: (x + 1).relu()), torch.ones(2), save=save)


def test_find_sites_answers_as_save_does() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU(), nn.Linear(2, 2))
    x = torch.randn(1, 2)
    trace = tl.trace(model, x)
    for selector in (
        tl.func("linear"),
        tl.in_module("1"),
        tl.module("2"),
        tl.func("linear") & ~tl.in_module("0"),
        tl.label("relu_1"),
        tl.contains("LIN"),
        tl.preceded_by(tl.func("relu")),
        "1",
        "linear_2_3",
        ["*"],
    ):
        options = tl.options.CaptureOptions(lookback=8)
        kept = tl.trace(model, x, save=selector, capture=options)
        expected = [
            op for op in labels(kept) if kept.ops[op].has_saved_activation and not op.startswith("output")
        ]
        assert [op.label for op in trace.find_sites(selector)] == expected, selector
    with pytest.raises(SelectorError):
        trace.find_sites(tl.func("linear") & tl.followed_by(tl.func("relu")))
    with pytest.raises(UnknownNameError):
        trace.find_sites("enc")


def test_recording_and_trace_agree_on_grouping_modules_flops_and_parameters() -> None:
    class Looped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            for _ in range(3):
                x = F.relu(self.fc(x)) + x
            return x

    model, x = Looped(), torch.randn(2, 4)
    a, b = tl.trace(model, x), tl.record(model, x, save=tl.func("relu")).to_trace()
    assert a.graph_id == b.graph_id and a.layer_labels == b.layer_labels
    assert [op.flops_forward for op in a.ops] == [op.flops_forward for op in b.ops]
    assert (a.num_params, a.modules["fc"].layers) == (b.num_params, b.modules["fc"].layers)
    assert b.saved_layers == ["relu_1_2"] and a.is_recurrent


def test_a_recording_without_its_graph_gives_no_trace_and_names_the_option() -> None:
    recording = tl.record(nn.ReLU(), torch.ones(1), save=tl.func("relu"), graph=False)
    with pytest.raises(tl.errors.CaptureError, match="graph=True"):
        recording.to_trace()


def test_a_dropped_trace_leaves_nothing_alive() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.ReLU())
    trace = tl.trace(model, torch.randn(1, 2))
    op = trace["linear_1_1"].op
    module, payload, held = weakref.ref(model), weakref.ref(trace["relu_1_2"].out), weakref.ref(trace)
    gc.collect()
    gc.disable()
    try:
        del trace
        assert held() is None and op.out.shape == (1, 2)
        del op
        assert payload() is None
        del model
        assert module() is None
    finally:
        gc.enable()


def test_collection_is_as_it_was_after_tracing() -> None:
    gc.disable()
    try:
        assert tl.trace(nn.ReLU(), torch.ones(1)).num_ops == 1 and not gc.isenabled()
    finally:
        gc.enable()
    assert tl.trace(nn.ReLU(), torch.ones(1)).num_ops == 1 and gc.isenabled()


def test_a_watched_call_has_the_trace_that_tl_trace_makes() -> None:
    model, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2)), torch.randn(2, 4)
    with tl.Recorder(model, save=tl.func("relu")) as recorder:
        with recorder.watch():
            model(x)
        watched = recorder.recording.to_trace()
    assert watched.layer_labels == tl.trace(model, x).layer_labels
    assert watched.input_layers == ["input_1"]
    assert watched.output_layers == ["output_1"]
    assert "forward" not in vars(model)


def test_each_watched_call_has_inputs_and_outputs_of_its_own() -> None:
    model, x = nn.Linear(3, 3), torch.randn(1, 3)
    with tl.Recorder(model, save=tl.func("linear")) as recorder:
        with recorder.watch():
            model(model(x))
        watched = recorder.recording.to_trace()
    assert watched.input_layers == ["input_1"]
    assert watched.output_layers == ["output_1", "output_2"]


def test_buffers_and_inputs_of_a_watched_call_are_offered_where_asked_for() -> None:
    model, x = nn.BatchNorm1d(3).eval(), torch.randn(2, 3)
    with tl.Recorder(model, save=None, default_op=True, include_source_events=True) as recorder:
        with recorder.watch():
            model(x)
        kinds = [record.kind for record in recorder.recording]
    assert kinds.count("input") == 1
    assert kinds.count("buffer") == 2
