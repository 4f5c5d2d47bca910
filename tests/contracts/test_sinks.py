"""What every sink promises to whoever captures: `Sink` and `SinkFactory` of `capture/protocols.py`.

A new sink is one more line in `SINKS` (or `FACTORIES`) and passes unchanged.
"""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger
from torch.utils.tensorboard import SummaryWriter

import tl_integrations as tl
from tests.bundles import step
from tests.reporting.captures import captured
from tl_integrations.capture.events import Moment
from tl_integrations.capture.protocols import CapturedStep, Outcome, Sink, SinkContext, SinkFactory, SinkNeeds
from tl_integrations.capture.sinks import MemorySink, opened_when_needed
from tl_integrations.errors import BundleExistsError
from tl_integrations.reporting import LoggerSink, TensorBoardSink
from tl_integrations.storage import TlspecSink

SINKS: dict[str, Callable[[Path], Sink]] = {
    "memory": lambda folder: MemorySink(),
    "bundle": lambda folder: TlspecSink(folder / "run.tlspec"),
    "bundle without tensors": lambda folder: tl.to_disk(folder / "run.tlspec", tensors=False).open(
        SinkContext()
    ),
    "opened when needed": lambda folder: opened_when_needed(tl.to_disk(folder / "run.tlspec"), SinkContext),
    "TensorBoard": lambda folder: TensorBoardSink(SummaryWriter(folder)),
    "logger with a board": lambda folder: LoggerSink(TensorBoardLogger(folder), histograms=8),
    "logger of tables": lambda folder: LoggerSink(CSVLogger(folder)),
}
FACTORIES: dict[str, Callable[[Path], SinkFactory]] = {
    "to_disk": lambda folder: tl.to_disk(folder / "run.tlspec"),
}
AWKWARD = {
    "empty": torch.zeros(0, 3),
    "scalar": torch.tensor(2.0),
    "bad": torch.tensor([float("nan"), float("inf"), 1.0]),
    "constant": torch.zeros(4, 2),
}


@pytest.fixture(params=SINKS, ids=list(SINKS))
def sink(request: pytest.FixtureRequest, tmp_path: Path) -> Sink:
    return SINKS[request.param](tmp_path)


def steps() -> list[CapturedStep]:
    """Statistics alone, tensors alone, an evaluation batch, and a step of nothing."""
    measured = captured(0, {"a": torch.randn(4, 3), "b": torch.randn(2)})
    kept = step(3, {"a": torch.randn(4, 3), "b": torch.randn(2)})
    evaluated = captured(3, {"a": torch.randn(4, 3)}, stage="validate", batch=0)
    return [measured, kept, evaluated, CapturedStep(moment=Moment(step=5))]


def test_what_it_needs_never_changes(sink: Sink) -> None:
    needed = sink.needs
    assert isinstance(needed, SinkNeeds)
    for each in steps():
        sink.write(each)
        assert sink.needs == needed
    sink.close()
    assert sink.needs == needed


@pytest.mark.filterwarnings("ignore:No histogram of")
def test_any_tensor_is_taken_and_left_as_it_was(sink: Sink) -> None:
    written = [*steps(), captured(7, AWKWARD), step(8, AWKWARD)]
    before = [[None if r.payload is None else r.out.clone() for r in each.records] for each in written]
    for each in written:
        sink.write(each)
    sink.flush()
    sink.close()
    for each, tensors in zip(written, before, strict=True):
        for record, tensor in zip(each.records, tensors, strict=True):
            assert tensor is None or torch.equal(record.out.nan_to_num(), tensor.nan_to_num())


def test_flush_may_come_at_any_time_and_again(sink: Sink) -> None:
    sink.flush()
    for each in steps():
        sink.write(each)
        sink.flush()
        sink.flush()
    sink.close()


def test_a_second_close_does_nothing(sink: Sink, tmp_path: Path) -> None:
    sink.write(steps()[0])
    sink.close()
    left = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    sink.close(Outcome(status="failed", reason="too late"))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == left


@pytest.mark.parametrize("status", ["complete", "interrupted", "failed", "halted"])
def test_every_outcome_ends_it(sink: Sink, status: str) -> None:
    sink.write(steps()[1])
    sink.close(Outcome(status=status, reason="because"))  # type: ignore[arg-type]


def test_a_sink_that_took_nothing_can_be_closed(sink: Sink) -> None:
    sink.close()


def test_random_numbers_are_not_drawn(sink: Sink) -> None:
    written, before = steps(), torch.get_rng_state()
    for each in written:
        sink.write(each)
    sink.close()
    assert torch.equal(torch.get_rng_state(), before)


def test_records_are_told_apart_by_microbatch_call_and_loader(sink: Sink) -> None:
    one = captured(0, {"a": torch.randn(3)})
    more = [
        replace(record, moment=replace(record.moment, **{name: 1}))
        for name in ("microbatch", "call", "dataloader_idx")
        for record in one.records
    ]
    sink.write(replace(one, records=[*one.records, *more]))
    sink.close()


@pytest.fixture(params=FACTORIES, ids=list(FACTORIES))
def factory(request: pytest.FixtureRequest, tmp_path: Path) -> SinkFactory:
    return FACTORIES[request.param](tmp_path)


def test_a_check_leaves_nothing_behind(factory: SinkFactory, tmp_path: Path) -> None:
    factory.check(SinkContext())
    assert list(tmp_path.iterdir()) == []


def test_what_it_opens_needs_what_it_said(factory: SinkFactory) -> None:
    sink = factory.open(SinkContext())
    assert sink.needs == factory.needs
    sink.close()


def test_a_check_says_what_opening_would(factory: SinkFactory) -> None:
    sink = factory.open(SinkContext())
    sink.write(steps()[1])
    sink.close()
    for refused in (factory.check, factory.open):
        with pytest.raises(BundleExistsError):
            refused(SinkContext())
