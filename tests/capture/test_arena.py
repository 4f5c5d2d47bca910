"""Memory lent again to later captured steps is never memory that anybody still looks at."""

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils.flop_counter import FlopCounterMode

import tl_integrations as tl
from tl_integrations.capture import arena as arenas
from tl_integrations.capture.arena import SMALLEST, Arena
from tl_integrations.capture.events import Moment
from tl_integrations.capture.protocols import CapturedStep, Outcome, SinkNeeds

LARGE = SMALLEST // 4
"""Elements of a float tensor that an arena takes."""


def large(value: float = 0.0) -> Tensor:
    return torch.full((2, LARGE), value)


def address_after(arena: Arena, tensor: Tensor) -> int:
    arena.begin()
    return arena.copy(tensor).data_ptr()


def test_memory_is_lent_again_once_nobody_holds_the_copy() -> None:
    arena = Arena()
    first = address_after(arena, large())
    assert address_after(arena, large()) == first
    held = arena.copy(large())
    assert address_after(arena, large()) in (first, held.data_ptr()) and (held == 0).all()


HOLDS: dict[str, Callable[[Tensor], Any]] = {
    "tensor": lambda t: t,
    "view": lambda t: t[1, 5:],
    "detached": lambda t: t.detach().view(-1),
    "storage": lambda t: t.untyped_storage(),
    "array": lambda t: t.numpy()[0],
    "memory": lambda t: memoryview(t.numpy()),
    "dlpack": lambda t: np.from_dlpack(t),
    "capsule": lambda t: t.__dlpack__(),
    "saved for backward": lambda t: torch.ones(2, LARGE, requires_grad=True) * t,
    "parameter": lambda t: nn.Parameter(t),
    "closure": lambda t: lambda: t,
}


@pytest.mark.parametrize("hold", HOLDS)
def test_whatever_holds_the_memory_keeps_it_from_being_lent_again(hold: str) -> None:
    arena = Arena()
    arena.begin()
    copy = arena.copy(large(1.0))
    address = copy.data_ptr()
    held = HOLDS[hold](copy)
    del copy
    assert address_after(arena, large(2.0)) != address
    del held
    addresses = {address_after(arena, large(3.0)), arena.copy(large(4.0)).data_ptr()}
    assert address in addresses


@given(
    st.lists(
        st.lists(st.tuples(st.sampled_from((1, 2, 3)), st.integers(0, 6)), max_size=4), min_size=1, max_size=9
    )
)
def test_a_held_copy_never_changes_however_long_its_holder_takes(
    steps: list[list[tuple[int, int]]],
) -> None:
    """Each step copies tensors of one to three sizes; each copy is held for up to six further steps."""
    arena = Arena()
    held: list[tuple[int, float, Tensor]] = []
    for number, copies in enumerate(steps):
        arena.begin()
        for position, (size, patience) in enumerate(copies):
            value = float(number * 10 + position)
            held.append((number + patience, value, arena.copy(torch.full((size, LARGE), value))))
        assert all((tensor == value).all() for _, value, tensor in held)
        held = [each for each in held if each[0] > number]


class SlowSink:
    """Looks at payloads on a thread of its own, long after it was given them."""

    needs = SinkNeeds(payloads=True)

    def __init__(self) -> None:
        self.threads: list[threading.Thread] = []
        self.seen: dict[int, list[set[float]]] = {}

    def write(self, captured: CapturedStep) -> None:
        tensors = [record.out for record in captured.records]
        self.threads.append(threading.Thread(target=self._look, args=(captured.moment.step, tensors)))
        self.threads[-1].start()

    def _look(self, step: int, tensors: list[Tensor]) -> None:
        looks = []
        for _ in range(4):
            time.sleep(0.002 * (step % 3))
            looks.append({float(v) for tensor in tensors for v in (tensor.amin(), tensor.amax())})
        self.seen[step] = looks

    def flush(self) -> None:
        for thread in self.threads:
            thread.join()

    def close(self, outcome: Outcome = Outcome()) -> None:
        self.flush()


class Filler(nn.Module):
    """Every output is full of one number."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Identity(), nn.Identity()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, value: float) -> Tensor:
        return self.second(self.first(torch.full((4, LARGE), value)) * 1) * self.scale


@pytest.mark.parametrize("graph", [True, False])
def test_a_slow_sink_sees_each_step_as_it_was(graph: bool) -> None:
    model, sink = Filler(), SlowSink()
    monitor = tl.StepMonitor(
        model, schedule=1, save=["first", "second"], sinks=[sink], gradients=True, graph=graph
    )
    for step in range(30):
        with monitor.step(step):
            model(float(step)).sum().backward()
    monitor.close()
    assert sink.seen == {step: [{float(step)}] * 4 for step in range(30)}


@pytest.mark.parametrize("graph", [True, False])
def test_a_bundle_holds_each_step_as_it_was_and_so_does_what_the_user_keeps(
    tmp_path: Path, graph: bool
) -> None:
    model, kept = Filler(), []
    disk = tl.to_disk(tmp_path / "run.tlspec")
    memory = tl.StepMonitor(model, schedule=1, save="first", sinks=[disk], graph=graph)
    recorder = tl.Recorder(model, save="second", graph=graph)
    for step in range(12):
        with memory.step(step):
            with recorder.watch(Moment(step=step)):
                model(float(step))
            if step % 3 == 0:
                kept.append((step, recorder.drain().records[0].out))
            recorder.discard()
    memory.close()
    recording = tl.load(tmp_path / "run.tlspec")
    assert all((recording.at(step)["first"].out == step).all() for step in range(12))
    assert all((out == step).all() for step, out in kept)


def conv(batch: int = 4) -> tuple[nn.Module, Tensor]:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1))
    return model, torch.randn(batch, 3, 48, 48)


def fused(model: nn.Module, x: Tensor, out: Tensor) -> None:
    optimizer = torch.optim.Adam(model.parameters(), fused=True, lr=1.0)
    out.sum().backward()
    optimizer.step()


AFTER_THE_STEP: dict[str, Callable[[nn.Module, Tensor, Tensor], Any]] = {
    "fused optimizer": fused,
    "data": lambda model, x, out: out.data.zero_(),
    "parameters": lambda model, x, out: [p.data.zero_() for p in model.parameters()],
    "input": lambda model, x, out: x.zero_(),
    "array": lambda model, x, out: x.numpy().fill(0),
    "resize": lambda model, x, out: out.detach().untyped_storage().resize_(0),
    "storage": lambda model, x, out: out.untyped_storage().fill_(0),
}


@pytest.mark.parametrize("save", [tl.func("conv2d") | tl.func("relu"), ["0", "2"]], ids=["ops", "modules"])
@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("write", AFTER_THE_STEP)
def test_no_later_write_reaches_a_record_of_a_captured_step(write: str, graph: bool, save: Any) -> None:
    model, x = conv()
    if write == "array":
        x = torch.from_numpy(x.numpy().copy())
    recorder = tl.Recorder(model, save=save, graph=graph)
    for _ in range(3):
        expected = [
            record.out for record in tl.record(model, x.clone(), save=save, graph=graph, keep="clone")
        ]
        with recorder.watch():
            out = model(x)
        records = recorder.drain().records
        AFTER_THE_STEP[write](model, x, out)
        assert all(torch.equal(r.out, e) for r, e in zip(records, expected, strict=True))


LAYOUTS: dict[str, Callable[[], Tensor]] = {
    "contiguous": large,
    "channels last": lambda: torch.randn(4, 8, 64, 64).to(memory_format=torch.channels_last),
    "transposed": lambda: torch.randn(256, 512).t(),
    "permuted": lambda: torch.randn(16, 64, 4, 64).transpose(1, 2),
    "expanded": lambda: torch.randn(1, 512).expand(512, 512),
    "strided": lambda: torch.randn(512, 1024)[:, ::2],
    "shifted": lambda: torch.randn(300_000)[7:],
    "bfloat16": lambda: torch.randn(512, 512).bfloat16(),
    "int64": lambda: torch.arange(200_000),
    "bool": lambda: torch.randn(600, 600) > 0,
    "complex": lambda: torch.randn(400, 400, dtype=torch.complex64),
    "conjugated": lambda: torch.randn(400, 400, dtype=torch.complex64).conj(),
    "small": lambda: torch.randn(3),
    "empty": lambda: torch.empty(0, 5),
    "sparse": lambda: torch.eye(300).to_sparse(),
    "quantized": lambda: torch.quantize_per_tensor(torch.randn(512, 512), 0.1, 0, torch.qint8),
    "meta": lambda: torch.empty(1000, 1000, device="meta"),
}


@pytest.mark.filterwarnings("ignore:.*quantize:DeprecationWarning", "ignore:.*quantize:UserWarning")
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_copy_looks_like_a_clone(layout: str) -> None:
    arena, tensor = Arena(), LAYOUTS[layout]()
    for _ in range(2):
        arena.begin()
        copy, clone = arena.copy(tensor), tensor.clone()
        assert (copy.shape, copy.dtype, copy.layout, copy.device) == (
            clone.shape,
            clone.dtype,
            clone.layout,
            clone.device,
        )
        if copy.layout is torch.strided:
            assert copy.stride() == clone.stride()
        if not copy.is_meta:
            assert torch.equal(
                copy.to_dense() if copy.is_sparse else copy, clone.to_dense() if copy.is_sparse else clone
            )
            assert not copy.is_inference() and not copy._is_view()
        del copy


def test_copies_of_and_within_inference_mode_are_plain_tensors() -> None:
    arena = Arena()
    arena.begin()
    with torch.inference_mode():
        inside = torch.ones(2, LARGE)
        copies = [arena.copy(inside), arena.copy(large(1.0))]
    copies.append(arena.copy(inside))
    assert all(not copy.is_inference() and copy.add_(1).eq(2).all() for copy in copies)


def test_a_mode_that_sees_every_operator_is_shown_a_clone() -> None:
    arena = Arena()
    arena.begin()
    with FakeTensorMode():
        fake = torch.empty(2, LARGE)
        assert type(arena.copy(fake)) is type(fake)
    with FlopCounterMode(display=False):
        assert (arena.copy(large(1.0)) == 1).all()
    doubled = torch.vmap(lambda row: arena.copy(row.detach()) * 2)(large(3.0))
    assert (doubled == 6).all()


def test_memory_that_was_moved_away_is_lent_again_and_what_was_moved_stays() -> None:
    arena = Arena()
    arena.begin()
    moved = arena.copy(large(1.0))
    moved.share_memory_()
    for value in (2.0, 3.0):
        arena.begin()
        assert (arena.copy(large(value)) == value).all()
    assert (moved == 1).all()


def test_memory_is_given_back_when_it_is_not_used_or_the_recorder_is_closed() -> None:
    arena = Arena()
    arena.begin()
    arena.copy(large())
    for _ in range(10):
        arena.begin()
    assert not arena._blocks and arena._nbytes == 0
    held = arena.copy(large(5.0))
    arena.clear()
    arena.begin()
    arena.copy(large(6.0))
    assert (held == 5).all()


def test_an_arena_has_an_upper_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arenas, "_MOST_BYTES", 3 * large().nbytes)
    arena = Arena()
    arena.begin()
    copies = [arena.copy(large(float(value))) for value in range(6)]
    assert len(arena._blocks) == 3
    assert all((copy == value).all() for value, copy in enumerate(copies))


def test_a_recording_in_memory_holds_no_arena() -> None:
    model, x = conv()
    recording = tl.record(model, x, save=["0", "2"], graph=False)
    assert recording[0].out.untyped_storage().resizable()
