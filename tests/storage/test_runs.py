"""The runs of a sweep, side by side."""

from pathlib import Path
from typing import Any

import pytest
import torch
from rich.console import Console
from torch import nn

import tl_integrations as tl
from tl_integrations.capture.events import Moment
from tl_integrations.capture.protocols import Outcome, SinkContext
from tl_integrations.errors import BundleIOError


def write_run(path: Path, config: Any, steps: range, outcome: Outcome = Outcome()) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    recorder = tl.Recorder(model, save="0", graph=False)
    sink = tl.to_disk(path).open(SinkContext(config=config))
    for step in steps:
        with recorder.watch(Moment(step=step)):
            model(torch.zeros(1, 2))
        sink.write(recorder.drain())
    sink.close(outcome)


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    for job, (depth, lr) in enumerate([(1, 0.1), (2, 0.1), (3, 0.1)]):
        (tmp_path / str(job)).mkdir()
        config = {"net": {"_target_": "m.Net", "depth": depth}, "lr": lr}
        outcome = Outcome(status="interrupted", reason="ctrl-c") if job == 2 else Outcome()
        write_run(tmp_path / str(job) / "run.tlspec", config, range(job + 1), outcome)
    return tmp_path


def test_runs_are_one_table_of_what_tells_them_apart(sweep: Path) -> None:
    runs = tl.load_runs(f"{sweep}/**/run.tlspec")
    assert [dict(row, run=Path(row["run"]).parent.name) for row in runs.rows()] == [
        {"run": "0", "status": "complete", "steps": 1, "last": 0, "net.depth": 1},
        {"run": "1", "status": "complete", "steps": 2, "last": 1, "net.depth": 2},
        {"run": "2", "status": "interrupted", "steps": 3, "last": 2, "net.depth": 3},
    ]
    console = Console(record=True, width=200)
    console.print(runs)
    assert "net.depth" in console.export_text()


def test_each_run_is_a_recording_by_its_path(sweep: Path) -> None:
    runs = tl.load_runs(sweep / "*" / "run.tlspec")
    assert [run.steps for run in runs.values()] == [[0], [0, 1], [0, 1, 2]]
    assert list(runs) == sorted(runs)


def test_a_run_without_config_stands_beside_the_others(sweep: Path) -> None:
    (sweep / "3").mkdir()
    write_run(sweep / "3" / "run.tlspec", None, range(1))
    rows = tl.load_runs(f"{sweep}/*/run.tlspec").rows()
    assert [row["net.depth"] for row in rows] == [1, 2, 3, None]
    assert [row["lr"] for row in rows] == [0.1, 0.1, 0.1, None]


def test_a_pattern_that_matches_nothing_is_an_error_that_names_it(tmp_path: Path) -> None:
    with pytest.raises(BundleIOError, match="nowhere"):
        tl.load_runs(f"{tmp_path}/nowhere/*.tlspec")
