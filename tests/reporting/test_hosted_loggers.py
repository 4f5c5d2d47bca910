"""W&B offline and MLflow's local store, through their real libraries."""

import json
import struct
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning.pytorch.loggers import MLFlowLogger, WandbLogger

from tests.reporting.captures import captured
from tl_integrations.reporting import LoggerSink

wandb = pytest.importorskip("wandb", reason="wandb comes with the extra 'loggers'")
pytest.importorskip("mlflow", reason="mlflow comes with the extra 'loggers'")

STEPS = (0, 10, 20)


def write(sink: LoggerSink) -> None:
    for step in STEPS:
        values = {"net.0:2": torch.arange(4.0) + step, "bad": torch.tensor([torch.nan, 1.0])}
        sink.write(captured(step, values))
    sink.close()


def wandb_rows(file: Path) -> Iterator[dict[str, Any]]:
    """The history of an offline run, read from its log of records, in blocks as LevelDB writes them."""
    from wandb.proto.wandb_internal_pb2 import Record

    content, place, parts = file.read_bytes(), 7, b""
    while place < len(content):
        if 32768 - place % 32768 < 7:
            place += 32768 - place % 32768
            continue
        _, length, kind = struct.unpack("<IHB", content[place : place + 7])
        fragment = content[place + 7 : place + 7 + length]
        parts = fragment if kind in (1, 2) else parts + fragment
        place += 7 + length
        if kind in (1, 4):
            record = Record.FromString(parts)
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                yield {"/".join(item.nested_key) or item.key: json.loads(item.value_json) for item in items}


def test_wandb_gets_one_row_per_captured_step_with_scalars_and_histograms(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        logger = WandbLogger(
            project="p", save_dir=tmp_path, offline=True, settings=wandb.Settings(silent=True, console="off")
        )
        logger.log_metrics({"loss": 1.0}, 0)
        sink = LoggerSink(logger, histograms=8)
        assert sink.needs.summaries.histogram_bins == 8
        write(sink)
        logger.experiment.finish()
        wandb.teardown()  # finish() only announces the end; the file is whole when its writer has gone
    (file,) = tmp_path.glob("wandb/offline-run-*/run-*.wandb")
    loss, *rows = wandb_rows(file)
    assert loss["loss"] == 1 and [row["trainer/global_step"] for row in rows] == list(STEPS)
    assert [row["act_mean/net.0:2"] for row in rows] == [1.5, 11.5, 21.5]
    assert all(row["act_nonfinite_fraction/bad"] == 0.5 for row in rows)
    histogram = {key: rows[1][f"act_hist/net.0:2/{key}"] for key in ("_type", "values", "bins")}
    assert histogram["_type"] == "histogram" and sum(histogram["values"]) == 4
    assert histogram["bins"][0] == 10 and histogram["bins"][-1] == 13


def test_mlflow_gets_every_captured_step_under_names_that_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    logger = MLFlowLogger(experiment_name="p", tracking_uri=f"file:{tmp_path}/runs")
    sink = LoggerSink(logger, histograms=8)
    assert sink.needs.summaries.histogram_bins == 0
    write(sink)
    history = logger.experiment.get_metric_history(logger.run_id, "act_mean/net.0_2")
    logger.finalize("success")
    assert [(point.step, point.value) for point in history] == [(0, 1.5), (10, 11.5), (20, 21.5)]
