"""`record` and `Recorder` on small models: what is kept, under which names, and that nothing stays behind."""

import pytest
import torch
from torch import Tensor, nn
from toy_models import Mlp, NoisyNet

import tl_integrations as tl


class Repeats(nn.Module):
    """One ReLU object called three times."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.r = nn.Linear(3, 3), nn.Linear(3, 3), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.r(self.b(self.r(self.a(self.r(x)))))


def left_behind(model: nn.Module) -> list[str]:
    """Names of modules on which something of ours stands."""
    hooks = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
    return [
        name
        for name, module in model.named_modules()
        if "forward" in vars(module) or any(getattr(module, kind) for kind in hooks)
    ]


@pytest.mark.parametrize("graph", [True, False])
def test_each_call_of_a_repeated_module_has_its_own_record(graph: bool) -> None:
    model, x = Repeats(), torch.randn(2, 3)
    taken = tl.record(model, x, save=tl.func("relu"), graph=graph)
    first = x.relu()
    second = model.a(first).relu()
    third = model.b(second).relu()
    assert all(torch.equal(record.out, y) for record, y in zip(taken, (first, second, third), strict=True))
    assert len({(record.label, record.pass_index) for record in taken}) == 3
    assert torch.equal(taken["r:2"].out, second)
    assert len({record.layer for record in taken}) == 3


@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("save", ["func('relu')", "layers.1", "**", "func('linear') & in_module('layers.2')"])
def test_nothing_stays_on_the_model(save: str, graph: bool) -> None:
    model = Mlp()
    tl.record(model, torch.randn(2, 16), save=save, graph=graph)
    assert left_behind(model) == []


def test_final_labels_number_ops_and_types() -> None:
    taken = tl.record(Mlp(depth=2), torch.randn(1, 16), save=tl.func("relu"))
    assert [record.label for record in taken] == ["relu_1_2", "relu_2_4"]
    assert taken["relu_2_4"] is taken[1] and taken["relu_1"] is taken[0]


def test_without_a_graph_labels_are_not_guessed() -> None:
    taken = tl.record(Mlp(depth=2), torch.randn(1, 16), save=tl.func("relu"), graph=False)
    assert [record.label for record in taken] == [None, None]
    assert taken["relu_2"] is taken[1] and taken["act:2"] is taken[1]


def test_outputs_of_named_modules_equal_a_hook() -> None:
    model, x, seen = Mlp(), torch.randn(2, 16), []
    handle = model.layers[1].register_forward_hook(lambda m, a, out: seen.append(out.clone()))
    taken = tl.record(model, x, save="layers.1", graph=False)
    handle.remove()
    assert torch.equal(taken["layers.1"].out, seen[0])


def test_the_users_hook_on_a_module_is_seen_and_kept() -> None:
    net, x, hits = nn.Linear(3, 3), torch.randn(1, 3), []

    def double(module: nn.Module, args: object, out: Tensor) -> Tensor:
        hits.append(1)
        return out * 2

    handle = net.register_forward_hook(double)
    taken, out = tl.record(net, x, save=tl.module(""), graph=False, return_output=True)
    assert torch.equal(taken[0].out, out) and len(hits) == 1
    net(x)
    assert len(hits) == 2
    handle.remove()


def test_the_rng_and_the_buffers_are_those_of_a_plain_run() -> None:
    def run(watched: bool) -> tuple[Tensor, Tensor, Tensor]:
        torch.manual_seed(0)
        model, x = NoisyNet(), torch.randn(4, 8)
        out = tl.record(model, x, save=tl.func("relu")).output if watched else model(x)
        return out, torch.rand(3), model.norm.running_mean.clone()

    assert all(torch.equal(a, b) for a, b in zip(run(True), run(False), strict=True))


def test_predicates_are_called_once_per_op() -> None:
    seen: list[str] = []
    tl.record(Mlp(depth=3), torch.randn(1, 16), save=lambda event: not seen.append(event.label))
    assert seen == ["linear_1", "relu_1", "linear_2", "relu_2", "linear_3", "relu_3"]


def test_in_place_writes_do_not_reach_what_was_kept() -> None:
    class Writes(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            y = torch.relu(x)
            y.add_(1)
            view = y[0]
            z = torch.relu(y * 2)
            view.zero_()
            z.mul_(0)
            return z + y.sum()

    x = torch.randn(3, 4)
    for keep in ("alias", "clone"):
        taken = tl.record(Writes(), x, save=tl.func("relu"), keep=keep)
        assert torch.equal(taken[0].out, x.relu())
        assert torch.equal(taken[1].out, ((x.relu() + 1) * 2).relu())


def test_writing_into_a_payload_reaches_neither_output_nor_model() -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)), torch.randn(4, 3)
    expected = net(x)
    for save in (tl.func("linear"), tl.func("relu"), tl.in_module("0"), lambda event: True):
        taken, out = tl.record(net, x, save=save, return_output=True)
        for record in taken:
            record.out.detach().zero_()
        assert torch.equal(out, expected) and torch.equal(net(x), expected)


def test_a_recorder_numbers_its_runs() -> None:
    model = Mlp(depth=1)
    with tl.Recorder(model, save=tl.func("relu")) as recorder:
        outs = [recorder(torch.randn(1, 16)) for _ in range(3)]
    assert [record.run_index for record in recorder.recording] == [1, 2, 3]
    assert all(torch.equal(r.out, out) for r, out in zip(recorder.recording, outs, strict=True))


def test_watch_records_the_callers_own_calls() -> None:
    model, x = Mlp(depth=2), torch.randn(2, 16)
    recorder = tl.Recorder(model, save="layers.*", graph=False)
    model(x)
    with recorder.watch():
        model(x)
    step = recorder.drain()
    assert [record.layer for record in step.records] == ["layers.0", "layers.1"]
    assert recorder.drain().records == () and left_behind(model) == []


def test_paused_hides_what_happens_in_it() -> None:
    model, x = Mlp(depth=1), torch.randn(2, 16)
    recorder = tl.Recorder(model, save=tl.func("relu"), graph=False)
    with recorder.watch():
        with recorder.paused():
            model(x).relu()
        model(x)
    assert len(recorder.drain().records) == 1


def test_gradients_arrive_in_the_users_backward() -> None:
    model, x = Mlp(depth=2), torch.randn(2, 16)
    taken = tl.record(model, x, save=tl.func("relu"), gradients=True)
    assert taken[0].grad is None
    taken.backward(taken.output.sum())
    assert torch.equal(taken[1].grad, torch.ones(2, 16))
    assert taken[0].grad.shape == (2, 16)


def test_an_unknown_module_names_the_nearest() -> None:
    with pytest.raises(tl.errors.UnknownNameError, match=r"layers\.7.*Closest"):
        tl.record(Mlp(), torch.randn(1, 16), save="layers.7")
    with pytest.raises(tl.errors.UnknownNameError, match="relu"):
        tl.record(Mlp(), torch.randn(1, 16), save=tl.func("relUU"))


def test_a_known_name_that_did_not_run_is_a_warning() -> None:
    with pytest.warns(UserWarning, match="conv2d"):
        assert len(tl.record(Mlp(), torch.randn(1, 16), save=tl.func("conv2d"))) == 0


def test_summaries_are_there_in_memory_too_whenever_they_are_looked_at() -> None:
    options = tl.options.SummaryOptions(statistics=("mean",))
    values = torch.tensor([-1.0, 1.0, 3.0, 5.0])
    assert tl.record(nn.ReLU(), values, save=tl.func("relu"), summaries=options)[0].statistics == {
        "mean": 2.25
    }
    recorder = tl.Recorder(nn.ReLU(), save=tl.func("relu"), summaries=options)
    with recorder.watch():
        recorder.model(values)
    assert recorder.recording[0].statistics == recorder.drain().records[0].statistics == {"mean": 2.25}
