"""Models as people have them: wrappers, copies, threads, compilation, checkpoints, vmap, scripts."""

import copy
import gc
import io
import pickle
import threading
import warnings
import weakref
from typing import Any

import pytest
import torch
from observed_models import Checkpointed, encoder
from torch import Tensor, nn
from toy_models import Mlp

import tl_integrations as tl


def own_forward(model: nn.Module) -> list[str]:
    return [name for name, module in model.named_modules() if "forward" in vars(module)]


class CopiesItself(nn.Module):
    """Deep-copies, pickles and saves a part of itself while it runs."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
        self.taken: list[nn.Module] = []

    def forward(self, x: Tensor) -> Tensor:
        file = io.BytesIO()
        torch.save(self.part, file)
        file.seek(0)
        self.taken = [
            copy.deepcopy(self.part),
            pickle.loads(pickle.dumps(self.part)),
            torch.load(file, weights_only=False),
        ]
        return self.part(x)


@pytest.mark.parametrize("options", [{"graph": True}, {"graph": False}])
def test_a_copy_made_in_a_watched_forward_is_clean_and_trains_alone(options: dict[str, Any]) -> None:
    model, x = CopiesItself(), torch.randn(2, 3)
    taken = tl.record(model, x, save=tl.func("relu"), **options)
    assert len(taken) == 1 and own_forward(model) == []
    for clone in model.taken:
        assert torch.equal(clone(x), model.part(x))
        with torch.no_grad():
            clone[0].weight.zero_()
            clone[0].bias.fill_(1)
        assert not torch.equal(clone(x), model.part(x))
        assert clone(x).shape == copy.deepcopy(clone)(x).shape
        assert len(tl.record(clone, x, save=tl.func("relu"), **options)) == 1
    assert len(taken) == 1


def test_a_copy_keeps_the_forward_that_another_library_put_there() -> None:
    model = CopiesItself()
    model.part[0].forward = torch.neg  # type: ignore[method-assign]
    x = torch.randn(2, 3)
    tl.record(model, x, save=tl.func("relu"))
    assert all(torch.equal(clone(x), (-x).relu()) for clone in model.taken)
    assert own_forward(model) == ["part.0"] and model.part[0].forward is torch.neg


def test_another_librarys_forward_is_called_and_put_back() -> None:
    model, x, calls = Mlp(depth=2), torch.randn(1, 16), []
    plain = model.layers[0].forward

    def patched(x: Tensor) -> Tensor:
        calls.append(1)
        return plain(x)

    model.layers[0].forward = patched  # type: ignore[method-assign]
    for graph in (True, False):
        taken = tl.record(model, x, save=tl.func("linear"), graph=graph)
        assert [record.address for record in taken] == ["layers.0", "layers.1"]
    assert len(calls) == 2 and model.layers[0].forward is patched


def test_added_and_removed_modules_are_followed() -> None:
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU())
    recorder = tl.Recorder(model, save=tl.func("linear"), graph=False)
    x = torch.randn(1, 3)
    recorder(x)
    model.append(nn.Linear(3, 3))
    recorder(x)
    del model[0]
    recorder(x)
    assert [record.address for record in recorder.recording] == ["0", "0", "2", "1"]


def test_no_cache_keeps_a_model_alive() -> None:
    model = Mlp()
    tl.record(model, torch.randn(1, 16), save=tl.func("relu"), graph=False)
    held = [model]
    tl.record(model, torch.randn(1, 16), save=lambda event: held[0] is not None)
    there = weakref.ref(model)
    held.clear()
    del model
    gc.collect()
    assert there() is None


def test_a_recording_keeps_no_model_alive() -> None:
    model = Mlp()
    taken = tl.record(model, torch.randn(1, 16), save=tl.func("relu"))
    there = weakref.ref(model)
    del model
    gc.collect()
    assert there() is None and taken["relu_1_2"].shape == (1, 16)


def test_a_direct_forward_call_is_part_of_its_caller_in_every_plan() -> None:
    class Direct(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.part.forward(x)

    for graph in (True, False):
        taken = tl.record(Direct(), torch.randn(1, 3), save=tl.func("linear"), graph=graph)
        assert taken[0].address == "" and taken[0].modules == ()


def test_every_name_of_a_shared_module_works() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(3, 3))])
            self.tied = self.blocks[0]

        def forward(self, x: Tensor) -> Tensor:
            return self.tied(self.blocks[0](x))

    for name in ("tied", "blocks.0"):
        for graph in (True, False):
            taken = tl.record(Twice(), torch.randn(1, 3), save=tl.module(name), graph=graph)
            assert len(taken) == 2 and taken[f"{name}:2"] is taken[1]
            inside = tl.record(Twice(), torch.randn(1, 3), save=tl.in_module(f"{name}:2"), graph=graph)
            assert len(inside) == 1


def test_a_part_of_a_bigger_model_is_watched_under_its_own_names() -> None:
    model = nn.Sequential(Mlp(depth=1), nn.Linear(16, 2))
    recorder = tl.Recorder(model[0], save=tl.func("linear"), graph=False)
    with recorder.watch():
        model(torch.randn(1, 16))
    step = recorder.drain()
    # The head's linear ran in the watched block too, outside of every module of the watched part.
    assert [record.address for record in step.records] == ["layers.0", ""]


def test_inputs_of_a_module_are_recorded_before_it_runs() -> None:
    model, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(inplace=True)), torch.randn(2, 3)
    for graph in (True, False):
        taken = tl.record(model, x, save=tl.module("1", io="input"), graph=graph)
        assert torch.equal(taken[0].out, model[0](x)) and taken[0].io == "input"
        assert taken[0].modules == ("1:1",) and taken[0].path == "[0]"


def test_outputs_with_several_tensors_have_one_record_each() -> None:
    class Block(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Any:
            y = self.layer(x)
            return y, None, {"h": y * 2}

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.block = Block()

        def forward(self, x: Tensor) -> Tensor:
            out = self.block(x)
            assert type(out) is tuple and out[1] is None
            return out[0] + out[2]["h"]

    for graph in (True, False):
        taken = tl.record(Model(), torch.randn(2, 3), save="block", graph=graph)
        assert [record.path for record in taken] == ["[0]", '[2]["h"]']
        assert torch.equal(taken['block[2]["h"]'].out, taken["block[0]"].out * 2)
    assert len(tl.record(Model(), torch.randn(2, 3), save=tl.in_module("block"))) == 2


def test_one_tuple_argument_has_its_own_spelling() -> None:
    class Pair(nn.Module):
        def forward(self, pair: tuple[Tensor, Tensor]) -> Tensor:
            return torch.relu(pair[0] + pair[1])

    a, b = torch.randn(2), torch.randn(2)
    taken = tl.record(Pair(), ((a, b),), save=tl.func("relu"))
    assert torch.equal(taken[0].out, (a + b).relu())
    with pytest.raises(TypeError) as caught:
        tl.record(Pair(), (a, b), save=tl.func("relu"))
    assert any("((a, b),)" in note for note in caught.value.__notes__)


def test_cyclic_containers_end() -> None:
    class Cyclic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(2, 2)
            vars(self)["me"] = [self]

        def forward(self, d: dict[str, Any]) -> Any:
            return {"out": torch.relu(self.layer(d["x"])), "self": d}

    d: dict[str, Any] = {"x": torch.randn(1, 2)}
    d["self"] = d
    assert len(tl.record(Cyclic(), d, save=tl.func("relu"))) == 1
    assert len(tl.record(Cyclic(), d, save=tl.module(""), graph=False)) == 2


def test_a_very_deep_model_is_walked_without_recursion() -> None:
    model: nn.Module = nn.Linear(2, 2)
    for _ in range(150):
        model = nn.Sequential(model)
    taken = tl.record(model, torch.randn(1, 2), save=tl.func("linear"))
    assert taken[0].address == ".".join("0" * 150)


class TestThreads:
    def test_captures_in_threads_keep_to_themselves(self) -> None:
        model, found = Mlp(depth=4), {}
        inputs = {k: torch.randn(2, 16) for k in range(4)}

        def work(k: int) -> None:
            for _ in range(5):
                found[k] = tl.record(model, inputs[k], save=tl.func("relu"), graph=k % 2 == 0)

        threads = [threading.Thread(target=work, args=(k,)) for k in inputs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for k, x in inputs.items():
            assert len(found[k]) == 4 and torch.equal(found[k][-1].out, model(x))
        assert own_forward(model) == []

    def test_a_call_on_another_thread_is_not_recorded(self) -> None:
        model, x = Mlp(depth=1), torch.randn(1, 16)
        recorder = tl.Recorder(model, save="func('relu') | layers.0".replace(" | layers.0", ""), graph=False)
        hooks = tl.Recorder(model, save="layers.0", graph=False)
        with recorder.watch(), hooks.watch():
            thread = threading.Thread(target=model, args=(x,))
            thread.start()
            thread.join()
            model(x)
        assert len(recorder.drain().records) == 1 and len(hooks.drain().records) == 1

    def test_a_capture_inside_a_capture_has_its_own_records(self) -> None:
        class Nested(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.net = Mlp(depth=1)
                self.inner: Any = None

            def forward(self, x: Tensor) -> Tensor:
                self.inner = tl.record(self.net, x, save=tl.func("relu"))
                return self.net(x).relu()

        model, x = Nested(), torch.randn(1, 16)
        for graph in (True, False):
            taken = tl.record(model, x, save=tl.func("relu"), graph=graph)
            assert torch.equal(model.inner[0].out, model.net(x))
            assert torch.equal(taken[-1].out, model.net(x).relu())
            assert own_forward(model) == []

    def test_brackets_may_end_in_any_order(self) -> None:
        model, x = Mlp(depth=1), torch.randn(1, 16)
        first = tl.Recorder(model, save=tl.func("relu"), graph=False)
        second = tl.Recorder(model, save=tl.func("linear"))
        one, two = first.watch(), second.watch()
        one.__enter__()
        two.__enter__()
        model(x)
        one.__exit__(None, None, None)
        model(x)
        two.__exit__(None, None, None)
        model(x)
        assert len(first.drain().records) == 1 and len(second.drain().records) == 2
        assert own_forward(model) == [] and torch._C._len_torch_function_stack() == 0


class TestCompile:
    @pytest.fixture(autouse=True)
    def fresh(self) -> Any:
        torch._dynamo.reset()
        yield
        torch._dynamo.reset()

    @pytest.mark.parametrize("graph", [True, False])
    def test_a_compiled_model_runs_eagerly_for_the_capture_and_says_so(self, graph: bool) -> None:
        net, x = nn.Sequential(nn.Linear(4, 4), nn.ReLU()), torch.randn(3, 4)
        compiled = torch.compile(net, backend="eager", fullgraph=True)
        for save in (tl.func("relu"), tl.module("1")):
            taken = tl.record(compiled, x, save=save, graph=graph)
            assert len(taken) == 1 and taken[0].forced_eager and taken[0].address == "1"
            assert torch.allclose(taken[0].out, net(x))
        assert torch.allclose(compiled(x), net(x))

    def test_a_capture_adds_no_graph_to_a_compiled_model(self) -> None:
        net, x = Mlp(8, 2), torch.randn(3, 8)
        frames: list[int] = []

        def backend(module: Any, inputs: Any) -> Any:
            frames.append(1)
            return module.forward

        compiled = torch.compile(net, backend=backend)
        compiled(x)
        for graph in (True, False, True):
            assert len(tl.record(compiled, x, save=tl.func("relu"), graph=graph)) == 2
            compiled(x)
        assert len(frames) == 1

    def test_half_compiled_models_are_recorded_whole(self) -> None:
        net, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)), torch.randn(2, 3)
        expected = net(x)
        net[2] = torch.compile(net[2], backend="eager")
        for _ in range(3):
            taken, out = tl.record(net, x, save=tl.func("linear"), return_output=True)
            assert [r.address for r in taken] == ["0", "2"] and torch.allclose(out, expected)

    def test_module_compile_in_place_is_recognised(self) -> None:
        net, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3)
        net[0].compile(backend="eager")
        taken = tl.record(net, x, save="0", graph=False)
        assert len(taken) == 1 and taken[0].forced_eager


class TestCheckpointing:
    @pytest.mark.parametrize("reentrant", [True, False])
    @pytest.mark.parametrize(
        ("save", "graph"), [("**", False), ("func('relu')", False), ("func('relu')", True)]
    )
    def test_what_is_computed_again_in_the_backward_is_not_recorded_twice(
        self, save: str, graph: bool, reentrant: bool
    ) -> None:
        model = Checkpointed(reentrant)
        recorder = tl.Recorder(model, save=save, graph=graph)
        x = torch.randn(2, 6, requires_grad=True)
        with recorder.watch():
            model(x).sum().backward()
        with recorder.watch():
            torch.autograd.grad(model(x).sum(), x) if not reentrant else model(x).sum().backward()
        records = recorder.drain().records
        expected = 5 if save == "**" else 2
        assert [r.run_index for r in records] == [1] * expected + [2] * expected
        assert all(r.pass_index == 1 for r in records if r.kind == "module")


def test_vmap_results_are_recorded_without_data_and_do_not_escape() -> None:
    class Mapped(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.vmap(torch.relu)(x) * 1

    x = torch.randn(3, 2)
    with pytest.warns(UserWarning, match=r"torch\.vmap"):
        taken, out = tl.record(Mapped(), x, save=tl.func("relu"), return_output=True)
    assert torch.equal(out, x.relu())
    assert len(taken) == 1 and taken[0].payload is None


def test_a_scripted_model_is_refused_with_the_reason() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        scripted = torch.jit.script(nn.Linear(2, 2))
    with pytest.raises(tl.errors.UnsupportedModelError, match="TorchScript"):
        tl.record(scripted, torch.randn(1, 2), save=tl.func("linear"))


def test_a_scripted_part_is_named_as_unseen() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        model = nn.Sequential(nn.Linear(2, 2), torch.jit.script(nn.Linear(2, 2)))
    x = torch.randn(1, 2)
    with pytest.warns(UserWarning, match="'1' runs inside TorchScript"):
        assert len(tl.record(model, x, save=tl.func("linear"))) == 1
    assert [r.address for r in tl.record(model, x, save="**", graph=False)] == ["0"]
    with pytest.raises(tl.errors.UnsupportedModelError, match="takes no hooks"):
        tl.record(model, x, save="1", graph=False)


def test_what_is_no_module_is_refused() -> None:
    with pytest.raises(tl.errors.UnsupportedModelError, match=r"torch\.nn\.Module"):
        tl.record(torch.relu, torch.randn(1), save=tl.func("relu"))  # type: ignore[arg-type]


def test_a_wrapper_of_ddp_is_looked_through() -> None:
    class DistributedDataParallel(nn.Module):
        """Named and built as torch's, without a process group."""

        def __init__(self, module: nn.Module) -> None:
            super().__init__()
            self.module = module

        def forward(self, x: Tensor) -> Tensor:
            return self.module(x)

    net, x = Mlp(depth=1), torch.randn(1, 16)
    for save in ("layers.0", "func('linear')"):
        for graph in (True, False):
            taken = tl.record(DistributedDataParallel(net), x, save=save, graph=graph)
            assert [record.address for record in taken] == ["layers.0"]


class TestFused:
    def model(self) -> tuple[nn.Module, Tensor]:
        torch.manual_seed(0)
        return encoder().eval(), torch.randn(2, 5, 8)

    def test_outputs_of_whole_layers_keep_the_fused_kernel(self) -> None:
        model, x = self.model()
        with torch.no_grad():
            expected = model(x)
            taken, out = tl.record(model, x, save="layers.*", graph=False, return_output=True)
        assert torch.equal(out, expected) and torch.equal(taken["layers.1"].out, expected)
        assert own_forward(model) == []

    def test_functions_inside_are_seen_with_a_warning_that_says_why(self) -> None:
        model, x = self.model()
        with torch.no_grad():
            expected = model(x)
            with pytest.warns(UserWarning, match="fused kernel"):
                taken, out = tl.record(model, x, save=tl.func("linear"), return_output=True)
            again = model(x)
        assert len(taken) == 4 and torch.allclose(out, expected, atol=1e-5)
        assert torch.equal(again, expected)

    def test_a_module_inside_is_seen_with_a_warning(self) -> None:
        model, x = self.model()
        with torch.no_grad(), pytest.warns(UserWarning, match="fused kernel"):
            taken = tl.record(model, x, save="layers.0.linear1", graph=False)
        assert taken[0].shape == (2, 5, 16)

    def test_training_warns_of_nothing(self) -> None:
        model, x = self.model()
        assert len(tl.record(model.train(), x, save=tl.func("linear"))) == 4


def test_weights_that_are_read_without_a_call_are_a_warning() -> None:
    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return nn.functional.linear(x, self.inner.weight)

    model, x = Reads(), torch.randn(1, 3)
    assert len(tl.record(model, x, save=tl.func("linear"))) == 1
    for save in (tl.in_module("inner"), tl.module("inner")):
        for graph in (True, False):
            with pytest.warns(UserWarning, match="'inner' was not called"):
                assert len(tl.record(model, x, save=save, graph=graph)) == 0


def test_a_module_that_was_not_called_is_named_also_when_others_were() -> None:
    class Skips(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.used, self.unused = nn.Linear(3, 3), nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            return self.used(x)

    with pytest.warns(UserWarning, match="'unused' was not called"):
        assert len(tl.record(Skips(), torch.randn(1, 3), save=["used", "unused"], graph=False)) == 1


def test_metrics_are_no_activations() -> None:
    torchmetrics = pytest.importorskip("torchmetrics")

    class Measured(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net, self.error = nn.Linear(3, 1), torchmetrics.MeanSquaredError()

        def forward(self, x: Tensor) -> Tensor:
            y = self.net(x)
            self.error.update(y, y)
            self.error(y, y)
            return y

    model, x = Measured(), torch.randn(2, 3)
    assert [r.func_name for r in tl.record(model, x, default_op=True, graph=False)] == ["linear"]
    assert [r.address for r in tl.record(model, x, save="**", graph=False)] == ["net"]
    assert [r.address for r in tl.record(model, x, save="error", graph=False)] == ["error"]


def test_random_seed_makes_the_pass_repeatable_and_puts_the_rng_back() -> None:
    model, x = nn.Dropout(0.5), torch.ones(100)
    state = torch.get_rng_state()
    a = tl.record(model, x, save=tl.func("dropout"), random_seed=3)
    assert torch.equal(torch.get_rng_state(), state)
    b = tl.record(model, x, save=tl.func("dropout"), random_seed=3)
    assert torch.equal(a[0].out, b[0].out)


def test_threads_started_inside_a_forward_are_documented_as_unseen() -> None:
    class Threaded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: list[Tensor] = []
            thread = threading.Thread(target=lambda: out.append(x.relu()))
            thread.start()
            thread.join()
            return out[0] + x.relu()

    assert len(tl.record(Threaded(), torch.randn(2), save=tl.func("relu"))) == 1


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_capture_on_a_gpu_waits_for_nothing_and_equals_hooks() -> None:
    net, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU()).cuda(), torch.randn(8, 64, device="cuda")
    summaries = tl.options.SummaryOptions(
        statistics=("mean", "std", "absmax", "zero_fraction"), histogram_bins=32
    )
    recorder = tl.Recorder(net, save=tl.func("relu"), graph=False, summaries=summaries)
    torch.cuda.set_sync_debug_mode("error")
    try:
        with recorder.watch():
            net(x)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    record = recorder.drain().records[0]
    assert torch.equal(record.out, net(x)) and record.device == "cuda:0"
    assert record.statistics is not None and abs(record.statistics["mean"] - float(net(x).mean())) < 1e-5


@pytest.mark.parametrize("graph", [True, False])
def test_what_the_model_itself_is_given_is_named_as_its_own(graph: bool) -> None:
    model = nn.Sequential(nn.Linear(3, 2), nn.ReLU())
    selected = tl.module("", io="input") | tl.module("") | tl.module("0", io="input") | tl.module("1")
    recording = tl.record(model, x := torch.ones(4, 3), save=selected, graph=graph)
    found = [(r.address, r.io, r.pass_index, r.modules, r.layer) for r in recording]
    assert found == [
        ("", "input", 1, (), "root.input[0]"),
        ("0", "input", 1, ("0:1",), "0.input[0]"),
        ("1", "output", 1, ("1:1",), "1"),
        ("", "output", 1, (), "root"),
    ]
    assert torch.equal(recording[0].out, x) and recording[0].func_name == "Sequential"
