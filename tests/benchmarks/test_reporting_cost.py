"""What does it cost to look: statistics every step, histograms, the heat map?"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
from interleaving import assert_ratio, interleave, is_measuring
from results import Report, Target
from torch import nn
from torch.utils.tensorboard import SummaryWriter

from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.capture.recorder import Recorder
from tl_integrations.capture.statistics import DEFAULT, Summariser, collect
from tl_integrations.options import SummaryOptions
from tl_integrations.reporting import TensorBoardSink
from tl_integrations.reporting.heatmap import heat_map
from tl_integrations.reporting.step_event import write_histograms

SECTION = "reporting"
TABLE = "Statistics and what is written, ratios to the first of each"


def training(depth: int = 20, width: int = 256, batch: int = 64) -> tuple[nn.Sequential, Callable[[], None]]:
    """A deep network and one plain training step of it."""
    torch.manual_seed(0)
    model = nn.Sequential(*(nn.Sequential(nn.Linear(width, width), nn.ReLU()) for _ in range(depth)))
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(batch, width)

    def step() -> None:
        model(x).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()

    return model, step


def test_cost_of_statistics_of_twenty_layers_in_every_step(
    request: pytest.FixtureRequest, report: Report, tmp_path: Path
) -> None:
    measuring = is_measuring(request)
    model, step = training() if measuring else training(depth=3, width=8, batch=4)
    recorder = Recorder(
        model, save="*.1", graph=False, payloads=False, summaries=SummaryOptions(statistics=DEFAULT)
    )
    writer = SummaryWriter(tmp_path)
    sink = TensorBoardSink(writer, histograms=0)

    def captured() -> CapturedStep:
        with recorder.watch(Moment(step=0)):
            step()
        return recorder.drain()

    cases = {
        "plain step": step,
        "statistics": captured,
        "statistics, written": lambda: sink.write(captured()),
    }

    def ratio() -> float:
        timings = interleave(cases, rounds=31 if measuring else 2)
        targets = {"statistics": Target(limit=1.2)}
        report.timings(TABLE, "20 layers of 64x256, every training step", timings, targets)
        return timings["statistics"].ratio

    assert len(captured().records) == (20 if measuring else 3)
    if measuring:
        assert_ratio(ratio, 1.2)
    else:
        ratio()
    writer.close()


def test_cost_of_a_histogram_beside_add_histogram(
    request: pytest.FixtureRequest, report: Report, tmp_path: Path
) -> None:
    measuring = is_measuring(request)
    # Of a captured step with several layers, each written to the end before the other is timed.
    values = [torch.randn(100_000 if measuring else 100) for _ in range(10 if measuring else 2)]
    writer = SummaryWriter(tmp_path)
    summariser = Summariser(SummaryOptions(histogram_bins=64))

    def theirs() -> None:
        for value in values:
            writer.add_histogram("theirs", value, 0)
        writer.flush()

    def ours() -> None:
        collected = collect([summariser.measure(value) for value in values])
        found = {f"ours_{k}": numbers[1] for k, numbers in enumerate(collected) if numbers and numbers[1]}
        assert len(found) == len(values)
        write_histograms(writer, found, 0)
        writer.flush()

    cases = {"add_histogram": theirs, "ours": ours}

    def ratio() -> float:
        timings = interleave(cases, rounds=31 if measuring else 2)
        report.timings(TABLE, "10 histograms of 100,000 values", timings, {"ours": Target(limit=0.1)})
        return timings["ours"].ratio

    if measuring:
        assert_ratio(ratio, 0.1)
    else:
        ratio()
    writer.close()


def test_cost_of_a_heat_map(request: pytest.FixtureRequest, report: Report) -> None:
    measuring = is_measuring(request)
    layers, steps = (200, 500) if measuring else (4, 5)
    values = np.random.default_rng(0).random((layers, steps))
    names = [f"blocks.{layer}.mlp" for layer in range(layers)]

    def by_target() -> float:
        timings = interleave({"heat map": lambda: heat_map(values, names, range(steps), "std")}, rounds=15)
        limit = Target(limit=0.050, of="value")
        report.timings(TABLE, "200 layers x 500 steps", timings, {"heat map": limit})
        return timings["heat map"].seconds / 0.050

    if measuring:
        assert_ratio(by_target, 1.0)
    else:
        by_target()


def test_cost_of_a_capture_that_is_only_written(
    request: pytest.FixtureRequest, report: Report, tmp_path: Path
) -> None:
    measuring = is_measuring(request)
    statistics = dict.fromkeys(DEFAULT, 1.0)
    records = [Record(layer=f"layer.{k}", statistics=statistics) for k in range(100 if measuring else 2)]
    writer = SummaryWriter(tmp_path)
    sink = TensorBoardSink(writer, histograms=0)
    step = CapturedStep(moment=Moment(step=1), records=records)
    timings = interleave({"written as one event": lambda: sink.write(step)}, rounds=15)
    report.timings(TABLE, "five statistics of 100 layers", timings)
    writer.close()
