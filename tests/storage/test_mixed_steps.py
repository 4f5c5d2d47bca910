"""Steps of any mixture against a twin that takes one record after the other."""

import weakref
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import torch
from bundles import InMemory, record, step
from faults.disks import FailingDisk
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from torch import Tensor

from tl_integrations.capture.events import Gradient, Histogram, Moment, Record
from tl_integrations.capture.recording import Recording
from tl_integrations.errors import BundleIOError
from tl_integrations.storage import TlspecSink, load, recover
from tl_integrations.storage.filesystem import Disk
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.shards import decode_table
from tl_integrations.storage.verification import verify

HISTOGRAM = Histogram(edges=(0.0, 1.0), counts=(2,), minimum=0.0, maximum=1.0, total=1.0, squares=1.0)


class QuickDisk(Disk):
    """Waits for nothing."""

    def sync(self, fd: int) -> None:
        pass


def tensor(dtype: torch.dtype, shape: tuple[int, ...], turned: bool, first: int) -> Tensor:
    """Turned: its elements do not lie in order."""
    values = (torch.arange(torch.Size(shape).numel()) + first).to(dtype).reshape(shape)
    return values.t().contiguous().t() if turned and values.dim() == 2 else values


tensors = st.builds(
    tensor,
    st.sampled_from([torch.float32, torch.uint8, torch.bfloat16]),
    st.sampled_from([(), (0,), (3,), (4, 2), (1, 5)]),
    st.booleans(),
    st.integers(0, 100),
)


@st.composite
def records(draw: st.DrawFn) -> Record:
    """Few of each kind, so that steps and parts of steps repeat."""
    kept = draw(st.none() | tensors)
    grad = draw(st.none() | tensors) if kept is not None else None
    fields: dict[str, Any] = {
        "run_index": draw(st.integers(1, 2)),
        "device": draw(st.sampled_from(["cpu", "cuda:0"])),
        "statistics": draw(st.sampled_from([None, {"mean": 0.5}, {"mean": float("nan"), "std": 2.0}])),
        "histogram": draw(st.sampled_from([None, HISTOGRAM])),
    }
    return record(kept, draw(st.sampled_from(["relu_1_1", "relu_2_2"])), grad=grad, **fields)


steps = st.lists(st.lists(records(), max_size=6), min_size=1, max_size=5).flatmap(
    lambda found: st.lists(st.sampled_from(found), min_size=1, max_size=8)
)


@given(steps=steps, shard_bytes=st.sampled_from([1, 40, 100, 1 << 20]), microbatches=st.booleans())
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_mixture_of_records_comes_back_from_columns_and_from_lines(
    steps: list[list[Record]], shard_bytes: int, microbatches: bool
) -> None:
    expected = [stepped(number, found, microbatches) for number, found in enumerate(steps)]
    with TemporaryDirectory() as folder:
        path = Path(folder) / "run.tlspec"
        with TlspecSink(path, options=WriteOptions(shard_bytes=shard_bytes), disk=QuickDisk()) as sink:
            for number, found in enumerate(expected):
                sink.write(step(number, found))
        assert verify(path).problems == ()
        flat = [one for found in expected for one in found]
        assert_same(load(path), flat)
        assert firsts(path) == firsts_of_twin(flat, shard_bytes)
        (path / "manifest.json").unlink()
        for columns in path.glob("index-*"):
            columns.unlink()
        assert_same(recover(path), flat)


def stepped(number: int, found: Sequence[Record], microbatches: bool) -> list[Record]:
    """The records as those of a step, of one microbatch or of two in turn."""
    moments = [Moment(step=number, microbatch=k) for k in range(2 if microbatches else 1)]
    made = []
    for position, one in enumerate(found):
        fields = {name: getattr(one, name) for name in Record.__dataclass_fields__}
        made.append(Record(**fields | {"moment": moments[position % len(moments)]}))
    return made


def assert_same(recording: Recording, expected: Sequence[Record]) -> None:
    assert len(recording) == len(expected)
    for found, told in zip(recording, expected):
        for name in Record.__dataclass_fields__.keys() - {"payload", "gradient", "statistics"}:
            assert getattr(found, name) == getattr(told, name), name
        assert repr(found.statistics) == repr(told.statistics)
        for kept, wanted in ((found.payload, told.payload), (found.gradient, told.gradient)):
            assert (kept is None) == (wanted is None)
        if told.payload is not None:
            assert_equal(found.out, told.out)
        if told.gradient is not None and found.grad is not None and told.grad is not None:
            assert_equal(found.grad, told.grad)


def assert_equal(found: Tensor, told: Tensor) -> None:
    assert found.dtype is told.dtype and found.shape == told.shape and torch.equal(found, told)


@dataclass
class Twin:
    """A shard to which records come one by one."""

    nbytes: int = 0
    records: int = 0
    firsts: list[int] = field(default_factory=list)

    def take(self, number: int, one: Record, shard_bytes: int) -> None:
        if not self.firsts or self.nbytes >= shard_bytes:
            self.nbytes, self.firsts = 0, [*self.firsts, number]
        for payload in (one.payload, None if one.gradient is None else one.gradient.payload):
            if payload is not None:
                self.nbytes += -self.nbytes % 8 + payload.nbytes


def firsts_of_twin(flat: Sequence[Record], shard_bytes: int) -> list[int]:
    twin = Twin()
    for number, one in enumerate(flat):
        twin.take(number, one, shard_bytes)
    return twin.firsts or [0]


def firsts(path: Path) -> list[int]:
    """The number of the first record of each shard."""
    found = []
    for file in sorted(path.glob("index-*.safetensors")):
        _, about = decode_table(file.read_bytes(), file.name)
        found.append(int(about["first"]))
    return found


def test_what_is_stored_may_change_from_step_to_step_while_the_record_says_the_same(tmp_path: Path) -> None:
    """As a transform of activations may do it."""
    kept = [torch.ones(4), torch.ones(2), torch.ones(4, dtype=torch.float16), torch.ones(4), torch.ones(2, 2)]
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        for number, one in enumerate(kept):
            told = Record(label="relu_1_1", moment=Moment(step=number), shape=(4,), payload=InMemory(one))
            sink.write(step(number, [told]))
    for found, one in zip(load(tmp_path / "run.tlspec"), kept, strict=True):
        assert_equal(found.out, one)
        assert found.shape == (4,) and found.dtype is torch.float32


def test_columns_number_texts_as_the_lines_bring_them(tmp_path: Path) -> None:
    """So that a bundle's bytes do not depend on how many records were added at once."""
    found = [record(torch.ones(k), f"relu_{k}_{k}", grad=torch.ones(k)) for k in (1, 2, 3)]
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        sink.write(step(0, found))
    columns, _ = decode_table((tmp_path / "run.tlspec" / "index-00001.safetensors").read_bytes(), "")
    assert columns["site"].tolist() == [0, 2, 4] and columns["grad_site"].tolist() == [1, 3, 5]


def test_a_step_of_one_gradient_only_of_many_records(tmp_path: Path) -> None:
    found = [record(torch.full((3,), float(k)), f"relu_{k}_{k}") for k in range(5)]
    found[3] = record(torch.full((3,), 3.0), "relu_3_3", grad=torch.full((3,), -3.0))
    found[4] = record(None, "relu_4_4")
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        sink.write(step(0, found))
    held = load_file(tmp_path / "run.tlspec" / "shard-00001.safetensors")
    own = {name: value.tolist() for name, value in held.items() if name[0] != "p"}
    assert own == {f"r{k:09d}": [float(k)] * 3 for k in range(4)} | {"g000000003": [-3.0] * 3}


def test_a_gradient_that_never_came_is_no_tensor(tmp_path: Path) -> None:
    bare = Record(
        label="relu_1_1", shape=(2,), payload=InMemory(torch.ones(2)), gradient=Gradient(reason="no")
    )
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        sink.write(step(0, [bare]))
    assert load(tmp_path / "run.tlspec")["relu_1_1"].grad is None


@pytest.mark.usefixtures("no_collector")
@pytest.mark.parametrize("call", ["write", "flush", "close"])
def test_a_step_that_could_not_be_written_is_freed_with_its_error(tmp_path: Path, call: str) -> None:
    disk = FailingDisk(-1, 5, frozenset({"write"}))
    sink = TlspecSink(tmp_path / "run.tlspec", disk=disk)
    disk.k = disk.calls + 1
    kept = torch.ones(3)
    alive = weakref.ref(kept)
    sink.write(step(0, {"relu_1_1": kept}))
    del kept
    calls = {"write": lambda: sink.write(step(1, {})), "flush": sink.flush, "close": sink.close}
    sink._queue.drain(10)
    try:
        calls[call]()
    except BundleIOError as error:
        assert "write to" in str(error)
    else:
        pytest.fail("nothing was raised")
    assert alive() is None
    sink.close()
