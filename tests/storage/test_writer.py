import json
import os
from pathlib import Path

import pytest
import torch
from bundles import bundle, record, step, values
from safetensors.torch import load_file

from tl_integrations.capture.events import Histogram, Moment
from tl_integrations.capture.protocols import CapturedStep, Outcome, SinkContext
from tl_integrations.errors import (
    BundleError,
    BundleExistsError,
    BundleIOError,
    BundleLimitError,
    BundleNotFinalizedError,
    BundleUnsafePathError,
    PayloadUnavailableError,
    UnsupportedTensorError,
)
from tl_integrations.storage import TlspecSink, load, to_disk


def test_what_is_written_is_read_back_bit_for_bit(tmp_path: Path) -> None:
    recording = load(bundle(tmp_path / "run.tlspec"))
    assert recording.steps == [0, 1, 2]
    assert recording.status == "complete"
    for number in recording.steps:
        for label, tensor in values(number).items():
            assert torch.equal(recording.at(number)[label].out, tensor)


def test_every_field_of_a_record_survives(tmp_path: Path) -> None:
    moment = Moment(step=7, stage="validate", microbatch=2, call=1, dataloader_idx=3, batch=4, rank=5)
    histogram = Histogram(
        edges=(0.0, 1.0, 2.0), counts=(3, 4), minimum=0.5, maximum=1.5, total=7.0, squares=float("inf")
    )
    told = record(
        torch.ones(2, 3),
        moment=moment,
        run_index=9,
        kind="module",
        raw_label="relu_1_3_raw",
        short_label="relu_1",
        func_name="ReLU",
        address="encoder.0",
        modules=("encoder:1", "encoder.0:2"),
        pass_index=2,
        path='["h"][0]',
        io="input",
        layer="encoder.0:2",
        line=12,
        device="cuda:1",
        requires_grad=True,
        forced_eager=True,
        placement="Shard(dim=0) on a mesh of 2",
        statistics={"mean": 0.1, "std": float("nan"), "absmax": float("-inf")},
        histogram=histogram,
    )
    with to_disk(tmp_path / "run.tlspec").open() as sink:
        sink.write(CapturedStep(moment=moment, records=[told, record(None, "no_tensor", moment=moment)]))
    read, bare = load(tmp_path / "run.tlspec")
    fields = set(type(told).__slots__) - {"payload", "statistics"}
    assert {name: getattr(read, name) for name in fields} == {name: getattr(told, name) for name in fields}
    assert read.statistics is not None
    assert repr(dict(read.statistics)) == repr(told.statistics)
    assert bare.payload is None and bare.statistics is None and bare.histogram is None


def test_gradients_come_back_with_their_scale(tmp_path: Path) -> None:
    told = record(torch.ones(3), grad=torch.arange(3.0))
    assert told.gradient is not None
    told.gradient.loss_scale, told.gradient.accumulate = 1024.0, 4
    with to_disk(tmp_path / "run.tlspec").open() as sink:
        sink.write(step(0, [told, record(torch.zeros(2))]))
    first, second = load(tmp_path / "run.tlspec")
    assert first.grad is not None and torch.equal(first.grad, torch.arange(3.0))
    assert (
        first.gradient is not None and first.gradient.loss_scale == 1024.0 and first.gradient.accumulate == 4
    )
    assert second.grad is None


def test_a_finished_shard_is_an_ordinary_safetensors_file(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec", steps=[3])
    tensors = load_file(path / "shard-00001.safetensors")
    assert torch.equal(tensors["r000000000"], values(3)["relu_1_1"])


def test_odd_sizes_are_aligned_by_fillers(tmp_path: Path) -> None:
    tensors = {f"a_{n}_1": torch.arange(n, dtype=torch.uint8) for n in range(1, 9)} | {
        "b_1_1": torch.arange(3.0, dtype=torch.float64),
        "c_1_1": torch.tensor([True]),
        "d_1_1": torch.ones(2, dtype=torch.complex128),
    }
    with to_disk(tmp_path / "run.tlspec").open() as sink:
        sink.write(step(0, tensors))
    recording = load(tmp_path / "run.tlspec")
    assert all(torch.equal(recording[label].out, tensor) for label, tensor in tensors.items())
    read = load_file(tmp_path / "run.tlspec" / "shard-00001.safetensors")
    assert torch.equal(read["r000000008"], tensors["b_1_1"])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_a_tensor_of_many_pieces_is_read_back_bit_for_bit(tmp_path: Path, dtype: torch.dtype) -> None:
    large, small = torch.randn(700_001).to(dtype), torch.randn(3).to(dtype)
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        sink.write(step(0, {"small_1_1": small, "large_1_2": large, "small_2_3": small}))
        sink.flush()
    found = load(tmp_path / "run.tlspec")
    assert torch.equal(found["large_1_2"].out, large)
    assert torch.equal(found["small_2_3"].out, small)


def test_a_step_that_fails_after_pieces_of_it_were_written_leaves_nothing(tmp_path: Path) -> None:
    emptied = torch.randn(4)
    emptied.untyped_storage().resize_(0)
    large = torch.randn(400_000)
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        sink.write(step(0, {"large_1_1": large, "emptied_1_2": emptied}))
        with pytest.raises(UnsupportedTensorError, match=r"emptied_1_2.*no memory"):
            sink.flush()
        sink.write(step(1, {"large_1_1": large}))
        sink.flush()
    found = load(tmp_path / "run.tlspec")
    assert found.steps == [1] and torch.equal(found["large_1_1"].out, large)
    (shard,) = (tmp_path / "run.tlspec").glob("shard-*")
    assert shard.stat().st_size < large.nbytes + 4096


def test_shards_roll_by_size_and_all_of_them_are_read(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec", steps=range(6), shard_bytes=100)
    shards = sorted(name for name in os.listdir(path) if name.startswith("shard"))
    assert shards == [f"shard-{k:05d}.safetensors" for k in range(1, 6)]
    assert len(load(path)) == 18
    assert torch.equal(load(path).at(5)["relu_2_2"].out, values(5)["relu_2_2"])


def test_one_step_may_span_shards(tmp_path: Path) -> None:
    tensors = {f"relu_{k}_{k}": torch.full((8,), float(k)) for k in range(20)}
    with to_disk(tmp_path / "run.tlspec", shard_bytes=64).open() as sink:
        sink.write(step(0, tensors))
        sink.flush()
        assert len(load(tmp_path / "run.tlspec", live=True)) == 20
    recording = load(tmp_path / "run.tlspec")
    assert [r.label for r in recording] == list(tensors)
    assert all(torch.equal(recording[label].out, tensor) for label, tensor in tensors.items())


def test_the_config_is_plain_yaml_and_comes_back_as_data(tmp_path: Path) -> None:
    config = {"model": {"_target_": "my.Net", "lr": 1e-3, "text": "1e5", "sizes": [1, 2], "none": None}}
    path = bundle(tmp_path / "run.tlspec", context=SinkContext(config=config))
    assert load(path).config == config
    assert "_target_: my.Net" in (path / "config.yaml").read_text()


def test_a_config_that_is_not_plain_is_refused_before_anything_is_made(tmp_path: Path) -> None:
    context = SinkContext(config={"model": {"net": torch.nn.Linear(1, 1)}})
    with pytest.raises(BundleError, match=r"config\.model\.net"):
        to_disk(tmp_path / "run.tlspec").check(context)
    with pytest.raises(BundleError, match="Linear"):
        to_disk(tmp_path / "run.tlspec").open(context)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_bundle_is_refused_with_the_choices(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    before = (path / "manifest.json").read_bytes()
    with pytest.raises(BundleExistsError, match=r"overwrite=True.*resume=True"):
        to_disk(path).check()
    with pytest.raises(FileExistsError):
        to_disk(path).open()
    assert (path / "manifest.json").read_bytes() == before


@pytest.mark.parametrize("options", [{}, {"overwrite": True}, {"resume": True}])
def test_what_is_not_a_bundle_is_never_touched(tmp_path: Path, options: dict[str, bool]) -> None:
    file, folder, empty, link = (tmp_path / name for name in ("file", "folder", "empty", "link"))
    file.write_text("mine")
    folder.mkdir()
    (folder / "config.yaml").write_text("mine: 1")
    empty.mkdir()
    link.symlink_to(bundle(tmp_path / "real.tlspec"))
    for path in (file, folder, empty, link):
        with pytest.raises((BundleExistsError, BundleUnsafePathError), match=path.name):
            to_disk(path, **options).check()
        with pytest.raises((BundleExistsError, BundleUnsafePathError)):
            to_disk(path, **options).open()
    assert (folder / "config.yaml").read_text() == "mine: 1"


def test_a_file_in_place_of_a_parent_is_refused_when_checked(tmp_path: Path) -> None:
    (tmp_path / "runs").write_text("a file")
    with pytest.raises(BundleIOError, match=r"runs.*is a file"):
        to_disk(tmp_path / "runs" / "deep" / "run.tlspec").check()


def test_checking_creates_nothing(tmp_path: Path) -> None:
    to_disk(tmp_path / "a" / "b" / "run.tlspec").check(SinkContext(config={"a": 1}))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("path", ["", "s3://bucket/run.tlspec", "a\0b"])
def test_paths_that_are_no_local_paths_are_refused(path: str) -> None:
    with pytest.raises(BundleUnsafePathError):
        to_disk(path).check()


def test_relative_paths_lie_under_the_folder_of_the_run(tmp_path: Path) -> None:
    with to_disk("run.tlspec").open(SinkContext(folder=tmp_path)) as sink:
        sink.write(step(0, values(0)))
    assert len(load(tmp_path / "run.tlspec")) == 3


def test_without_close_there_is_no_manifest_and_live_reads_what_is_committed(tmp_path: Path) -> None:
    sink = TlspecSink(tmp_path / "run.tlspec")
    sink.write(step(0, values(0)))
    sink.flush()
    with pytest.raises(BundleNotFinalizedError, match=r"tl\.recover"):
        load(tmp_path / "run.tlspec")
    live = load(tmp_path / "run.tlspec", live=True)
    assert live.steps == [0] and live.status == "interrupted"
    assert torch.equal(live["relu_1_1"].out, values(0)["relu_1_1"])
    sink.close()
    assert load(tmp_path / "run.tlspec", live=True).status == "complete"


@pytest.mark.parametrize("status", ["interrupted", "failed", "halted"])
def test_an_orderly_end_keeps_its_status_and_reason(tmp_path: Path, status: str) -> None:
    sink = TlspecSink(tmp_path / "run.tlspec")
    sink.write(step(0, values(0)))
    sink.close(Outcome(status=status, reason="because"))  # type: ignore[arg-type]
    sink.close(Outcome())
    recording = load(tmp_path / "run.tlspec")
    assert recording.outcome == Outcome(status=status, reason="because")  # type: ignore[arg-type]
    assert "because" in repr(recording)


def test_an_exception_in_the_block_is_written_into_the_bundle(tmp_path: Path) -> None:
    with pytest.raises(ZeroDivisionError), to_disk(tmp_path / "run.tlspec").open() as sink:
        sink.write(step(0, values(0)))
        raise ZeroDivisionError("by hand")
    assert load(tmp_path / "run.tlspec").outcome.reason == "ZeroDivisionError: by hand"


def test_the_same_run_may_open_its_bundle_again(tmp_path: Path) -> None:
    run = SinkContext(run_id="run-1")
    path = bundle(tmp_path / "run.tlspec", steps=[0, 1], context=run)
    bundle(path, steps=[2, 3], context=run)
    with pytest.raises(BundleExistsError):
        to_disk(path).check(SinkContext(run_id="run-2"))
    recording = load(path)
    assert recording.steps == [0, 1, 2, 3] and len(recording) == 12
    assert {r.moment.generation for r in recording} == {0}


def test_a_rewind_supersedes_what_was_committed_at_or_after_it(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec", steps=range(5), context=SinkContext(run_id="r"))
    with to_disk(path).open(SinkContext(run_id="r", resume_step=3)) as sink:
        sink.write(step(4, {"relu_1_1": torch.zeros(2)}))
    recording = load(path)
    assert recording.steps == [0, 1, 2, 4]
    assert torch.equal(recording.at(4)["relu_1_1"].out, torch.zeros(2))
    assert recording.at(4)["relu_1_1"].moment.generation == 1


def test_a_step_that_goes_back_in_a_later_opening_is_a_rewind(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec", steps=range(5))
    bundle(path, steps=[3, 4, 5], resume=True)
    recording = load(path)
    assert recording.steps == [0, 1, 2, 3, 4, 5] and len(recording) == 18


def test_training_that_begins_after_an_evaluation_is_no_step_back(tmp_path: Path) -> None:
    path = tmp_path / "run.tlspec"
    with to_disk(path).open() as sink:
        sink.write(step(0, values(0), stage="validate", batch=0))
    bundle(path, steps=[0, 1], resume=True)
    recording = load(path)
    assert [(r.step, r.stage) for r in recording][::3] == [(0, "validate"), (0, "train"), (1, "train")]
    assert {r.moment.generation for r in recording} == {0}


def test_an_unsupported_tensor_refuses_the_step_and_names_the_record(tmp_path: Path) -> None:
    sparse = torch.eye(2).to_sparse()
    with to_disk(tmp_path / "run.tlspec").open() as sink:
        with pytest.raises(UnsupportedTensorError, match=r"'relu_9_9'.*sparse_coo"):
            sink.write(step(0, {"relu_1_1": torch.ones(1), "relu_9_9": sparse}))
        sink.write(step(1, values(1)))
    assert load(tmp_path / "run.tlspec").steps == [1]


def test_tensors_false_keeps_the_numbers_only(tmp_path: Path) -> None:
    factory = to_disk(tmp_path / "run.tlspec", tensors=False)
    assert not factory.needs.payloads and "mean" in factory.needs.summaries.statistics
    with factory.open() as sink:
        sink.write(step(0, [record(torch.ones(4), statistics={"mean": 1.0})]))
    (only,) = load(tmp_path / "run.tlspec")
    assert only.statistics == {"mean": 1.0} and only.shape == (4,)
    assert not list((tmp_path / "run.tlspec").glob("shard*"))
    with pytest.raises(PayloadUnavailableError):
        _ = only.out


def test_reductions_shrink_the_tensor_and_say_what_was_computed(tmp_path: Path) -> None:
    whole = torch.randn(6, 4)
    with to_disk(tmp_path / "run.tlspec", dtype=torch.bfloat16, samples=2).open() as sink:
        sink.write(step(0, {"relu_1_1": whole, "ids_1_1": torch.arange(5)}))
    recording = load(tmp_path / "run.tlspec")
    assert torch.equal(recording["relu_1_1"].out, whole[:2].to(torch.bfloat16))
    assert recording["relu_1_1"].shape == (6, 4) and recording["relu_1_1"].dtype is torch.float32
    assert torch.equal(recording["ids_1_1"].out, torch.arange(2))


def test_beyond_max_bytes_steps_are_refused_and_counted(tmp_path: Path) -> None:
    with to_disk(tmp_path / "run.tlspec", max_bytes=100).open() as sink:
        sink.write(step(0, {"a_1_1": torch.zeros(20)}))
        with pytest.raises(BundleLimitError, match="max_bytes=100"):
            sink.write(step(1, {"a_1_1": torch.zeros(20)}))
    counts = json.loads((tmp_path / "run.tlspec" / "manifest.json").read_text())["counts"]
    assert counts["commits"] == 1 and counts["dropped_steps"] == 1 and counts["dropped_records"] == 1


def test_writing_after_close_is_refused(tmp_path: Path) -> None:
    sink = TlspecSink(tmp_path / "run.tlspec")
    sink.close()
    with pytest.raises(BundleError, match="closed"):
        sink.write(step(0, values(0)))
    assert len(load(tmp_path / "run.tlspec")) == 0


@pytest.mark.parametrize(
    "options",
    [
        {"overwrite": True, "resume": True},
        {"samples": 0},
        {"dtype": torch.int8},
        {"commit": "sometimes"},
        {"durability": "none"},
        {"max_pending_bytes": -1},
        {"shard_bytes": True},
    ],
)
def test_options_out_of_range_are_refused_at_once(options: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=next(iter(options))):
        to_disk("run.tlspec", **options)  # type: ignore[arg-type]


def test_several_steps_per_commit_are_written_together(tmp_path: Path) -> None:
    sink = TlspecSink(tmp_path / "run.tlspec", options=to_disk("x", commit=3).options)
    for number in range(5):
        sink.write(step(number, values(number)))
    sink._drain(10)
    assert load(tmp_path / "run.tlspec", live=True).steps == [0, 1, 2]
    sink.flush()
    assert load(tmp_path / "run.tlspec", live=True).steps == [0, 1, 2, 3, 4]
    sink.close()
    assert load(tmp_path / "run.tlspec").steps == [0, 1, 2, 3, 4]


def test_ranks_write_side_by_side_and_open_as_one(tmp_path: Path) -> None:
    path = tmp_path / "run.tlspec"
    for rank in (0, 2):
        with to_disk(path).open(SinkContext(rank=rank, world_size=3)) as sink:
            sink.write(step(0, values(rank), rank=rank))
    recording = load(path)
    assert {r.rank for r in recording} == {0, 2} and recording.missing_ranks == (1,)
    assert recording.failed and "rank 1" in repr(recording)
    assert load(path / "rank-00002-of-00003").status == "complete"


def test_one_keeping_rank_of_many_writes_a_flat_bundle(tmp_path: Path) -> None:
    path = tmp_path / "run.tlspec"
    with to_disk(path).open(SinkContext(rank=0, world_size=8, ranks=(0,))) as sink:
        sink.write(step(0, values(0)))
    assert load(path).missing_ranks == () and load(path).status == "complete"
