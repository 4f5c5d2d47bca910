"""The bundles of this folder: what version 1 of the format looks like, byte for byte.

    PYTHONPATH=tests python -m golden.make_bundles

A change in these files is a change of the format: it needs a new version, and the old files stay.
"""

import shutil
from pathlib import Path

import torch
from bundles import record

from tl_integrations.capture.events import Histogram, Moment
from tl_integrations.capture.oplog import GraphLog, ModuleLine, OpLine
from tl_integrations.capture.protocols import CapturedStep, Outcome, SinkContext
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.provenance import Identity
from tl_integrations.storage.writer import TlspecSink

HERE = Path(__file__).parent
IDENTITY = Identity(
    new_id=lambda: "0123456789abcdef0123456789abcdef",
    now=lambda: "2026-01-02T03:04:05Z",
    producer=lambda: {"tl_integrations": "0.1.0"},
    provenance=lambda: {"git_commit": "0" * 40, "git_dirty": False},
)
CONTEXT = SinkContext(
    config={"model": {"_target_": "my.Net", "depth": 3, "lr": 0.001, "text": "1e5"}},
    schedule="every(100)",
    selector="module('net')",
    run_id="golden",
)
GRAPH = GraphLog(
    lines=(
        OpLine(kind="input", type="input", shape=(2,)),
        OpLine(type="relu", func_name="relu", func="torch.relu", reads=(0,), shape=(2,)),
    ),
    modules=(ModuleLine(class_name="Net", outputs=(1,)),),
)


def minimal(path: Path) -> None:
    """One step of one tensor."""
    with TlspecSink(path, identity=IDENTITY) as sink:
        moment = Moment(step=0)
        sink.write(CapturedStep(moment=moment, records=[record(torch.tensor([1.0, -2.0]), moment=moment)]))


def full(path: Path) -> None:
    """Everything that the format knows: dtypes, gradients, numbers, a graph, a rewind, several shards."""
    options = WriteOptions(shard_bytes=64)
    with TlspecSink(path, identity=IDENTITY, context=CONTEXT, options=options) as sink:
        sink.write(_step(0, graph=GRAPH))
        sink.write(_step(100))
        sink.write(_step(200))
    again = SinkContext(run_id="golden", resume_step=150)
    sink = TlspecSink(path, identity=IDENTITY, context=again, options=options)
    sink.write(_step(200))
    sink.close(Outcome(status="halted", reason="by hand"))


def _step(number: int, graph: GraphLog | None = None) -> CapturedStep:
    moment = Moment(step=number, stage="train", microbatch=1)
    histogram = Histogram(edges=(0.0, 1.0), counts=(2,), minimum=0.0, maximum=1.0, total=1.0, squares=1.0)
    records = [
        record(torch.tensor([1.0, float(number)]), "relu_1_1", moment=moment, line=1, grad=torch.ones(2)),
        record(
            torch.tensor([1 + 2j]), "fft_1_2", moment=moment, statistics={"mean": float("nan"), "std": 0.5}
        ),
        record(torch.tensor([True, False, True]), "gt_1_3", moment=moment, modules=("net:1", "net.0:2")),
        record(None, "silent_1_4", moment=moment, histogram=histogram, statistics={"mean": 1.0}),
    ]
    return CapturedStep(moment=moment, records=records, graph=graph, seconds=0.25, event_count=4)


BUNDLES = {"v1_minimal.tlspec": minimal, "v1_full.tlspec": full}

if __name__ == "__main__":
    for name, make in BUNDLES.items():
        shutil.rmtree(HERE / name, ignore_errors=True)
        make(HERE / name)
