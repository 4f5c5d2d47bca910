"""Read by type checkers only: what a user's editor knows of captures, schedules and bundles."""

from pathlib import Path
from typing import assert_type

import torch
from torch import Tensor, nn

import tl_integrations as tl
from tl_integrations.capture.events import Event, Record
from tl_integrations.capture.modules import Module
from tl_integrations.capture.selector import Selector
from tl_integrations.options import CaptureOptions
from tl_integrations.reporting import LoggerSink, TensorBoardSink
from tl_integrations.schedule import Schedule

model = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
x = torch.zeros(2, 4)

recording = tl.record(model, x, save="0")
assert_type(recording, tl.Recording)
assert_type(recording["0"], Record)
assert_type(recording[0], Record)
assert_type(recording[:2], tl.Recording)
assert_type(recording["0"].out, Tensor)
assert_type(recording["0"].grad, Tensor | None)
assert_type(recording["0"].shape, tuple[int, ...])
assert_type(recording["0"].dtype, torch.dtype)
assert_type(recording.steps, list[int])
assert_type(recording.at(3), tl.Recording)
assert_type(recording.select(tl.func("relu")), tl.Recording)
assert_type(recording.to_trace(), tl.Trace)
for record in recording:
    assert_type(record, Record)
recorded, output = tl.record(model, x, save="0", return_output=True)
assert_type(recorded, tl.Recording)
tl.record(model, x, save=3)  # type: ignore[call-overload]
tl.record(model, x, keep="copy")  # type: ignore[call-overload]

trace = tl.trace(model, x)
assert_type(trace, tl.Trace)
assert_type(trace[0], tl.Op)
assert_type(trace[:2], list[tl.Op])
assert_type(trace["relu_1_2"], tl.Op | tl.Layer)
assert_type(trace.ops["relu_1_2"], tl.Op)
assert_type(trace.layers[0], tl.Layer)
assert_type(trace.modules["0"], Module)
assert_type(trace.total_flops_forward, int)

chosen = tl.func("relu") & tl.in_module("encoder") | ~tl.contains("norm")
assert_type(chosen, Selector)
assert_type(tl.select("func('relu')"), Selector)
assert_type(tl.module("0", io="input"), Selector)
tl.module("0", io="both")  # type: ignore[arg-type]
tl.func("relu") & 3  # type: ignore[operator]


def wide(event: Event) -> bool:
    assert_type(event.shape, tuple[int, ...])
    return event.shape[-1] > 4


with tl.Recorder(model, save=tl.where(wide), capture=CaptureOptions(lookback=4)) as recorder:
    assert_type(recorder, tl.Recorder)
    with recorder.watch() as watching:
        assert_type(watching, tl.Recorder)
    assert_type(recorder.recording, tl.Recording)

when = tl.schedule.every(100) | tl.schedule.at(0, 1) & ~tl.schedule.first(3) - tl.schedule.never()
assert_type(tl.schedule.parse("every(100)"), Schedule)
assert_type(when.preview(1000), list[int])
assert_type(when.next_after(3), int | None)
tl.schedule.every("often")  # type: ignore[arg-type]

monitor = tl.StepMonitor(model, schedule=when, save=chosen, sinks=[tl.to_disk("run.tlspec")])
with monitor.step(0) as armed:
    assert_type(armed, tl.Recorder | None)
assert_type(monitor.next_step, int)
assert_type(monitor.captures[0].seconds, float)
tl.StepMonitor(model, on_error="ignore")  # type: ignore[arg-type]

loaded = tl.load("run.tlspec")
assert_type(loaded, tl.Recording)
assert_type(tl.load_runs("*/run.tlspec")["a"], tl.Recording)
assert_type(tl.save(loaded, "copy.tlspec"), Path)
tl.save(loaded, "copy.tlspec", format="zip")  # type: ignore[arg-type]

SINKS = (LoggerSink, TensorBoardSink)
