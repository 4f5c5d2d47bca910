"""StepMonitor in a plain loop."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from toy_models import Mlp, NoisyNet

import tl_integrations as tl
from tl_integrations import schedule as S
from tl_integrations.capture.protocols import CapturedStep, Outcome, SinkContext, SinkNeeds
from tl_integrations.capture.sinks import LazySink, union_of_needs
from tl_integrations.errors import CaptureError, ScheduleError, UnknownNameError
from tl_integrations.monitor import NEVER
from tl_integrations.options import Budget, SummaryOptions


class Kept:
    """A sink that keeps what it is given."""

    def __init__(self, needs: SinkNeeds | None = None) -> None:
        self.needs = needs or SinkNeeds(payloads=True, summaries=SummaryOptions(statistics=("mean",)))
        self.steps: list[CapturedStep] = []
        self.closed: list[Outcome] = []
        self.flushed = 0

    def write(self, captured: CapturedStep) -> None:
        self.steps.append(captured)

    def flush(self) -> None:
        self.flushed += 1

    def close(self, outcome: Outcome = Outcome()) -> None:
        self.closed.append(outcome)


class Factory:
    """Counts how often it is checked and opened."""

    def __init__(self) -> None:
        self.sink = Kept()
        self.needs = self.sink.needs
        self.checked = self.opened = 0

    def check(self, context: SinkContext) -> None:
        self.checked += 1

    def open(self, context: SinkContext) -> Kept:
        self.opened += 1
        return self.sink


def run(monitor: tl.StepMonitor, model: nn.Module, steps: int = 6, width: int = 16) -> Iterator[Any]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    torch.manual_seed(3)
    for step in range(steps):
        with monitor.step(step) as recorder:
            model(torch.randn(4, width)).square().sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        yield recorder


def test_it_captures_on_the_scheduled_steps_only() -> None:
    sink, model = Kept(), Mlp()
    monitor = tl.StepMonitor(model, schedule=S.every(4) | S.at(1), save="layers.0", sinks=[sink])
    armed = [recorder is not None for recorder in run(monitor, model)]
    assert armed == [True, True, False, False, True, False]
    assert [step.moment.step for step in sink.steps] == [0, 1, 4] == [c.step for c in monitor.captures]


def test_weights_are_bitwise_those_of_a_run_without_it() -> None:
    models = []
    for schedule in ("never()", "always()"):
        torch.manual_seed(1)
        model = NoisyNet()
        list(run(tl.StepMonitor(model, schedule=schedule, sinks=[Kept()]), model, width=8))
        models.append(model.state_dict())
    assert all(torch.equal(models[0][name], models[1][name]) for name in models[0])


def test_a_captured_value_is_what_the_forward_computed() -> None:
    sink, model, seen = Kept(), Mlp(), []
    model.layers[1].register_forward_hook(lambda m, i, out: seen.append(out.detach().clone()))
    list(run(tl.StepMonitor(model, schedule=2, save="layers.1", sinks=[sink]), model))
    for step, expected in zip(sink.steps, seen[::2], strict=True):
        (record,) = step.records
        assert torch.equal(record.out, expected)
        assert record.statistics is not None
        assert record.statistics["mean"] == pytest.approx(expected.mean().item())


def test_without_a_selection_every_modules_output_is_captured() -> None:
    sink, model = Kept(), Mlp(depth=2)
    list(run(tl.StepMonitor(model, schedule=10, sinks=[sink]), model))
    names = {(record.address, record.pass_index) for record in sink.steps[0].records}
    assert names == {("layers.0", 1), ("act", 1), ("layers.1", 1), ("act", 2)}


def test_a_factory_is_checked_at_once_and_opened_at_the_first_capture() -> None:
    factory, model = Factory(), Mlp()
    monitor = tl.StepMonitor(model, schedule="at(3)", save="act", sinks=[factory])
    assert (factory.checked, factory.opened) == (1, 0)
    list(run(monitor, model, steps=3))
    assert factory.opened == 0
    with monitor.step(3):
        model(torch.randn(1, 16))
    assert factory.opened == 1 and len(factory.sink.steps) == 1


def test_a_run_without_captures_opens_nothing() -> None:
    factory = Factory()
    lazy = LazySink(factory, SinkContext)
    lazy.flush()
    lazy.close()
    assert factory.opened == 0 and factory.sink.closed == []


def test_an_exception_in_the_step_passes_through_and_leaves_nothing() -> None:
    sink, model = Kept(), Mlp()
    monitor = tl.StepMonitor(model, schedule=1, save="act", sinks=[sink])
    with pytest.raises(ZeroDivisionError), monitor.step(0):
        model(torch.randn(1, 16))
        raise ZeroDivisionError
    assert sink.steps == [] and not any(m._forward_hooks for m in model.modules())
    with monitor.step(1):
        model(torch.randn(1, 16))
    assert [step.moment.step for step in sink.steps] == [1]


def test_close_finishes_every_sink_even_if_one_fails() -> None:
    class Fails(Kept):
        def close(self, outcome: Outcome = Outcome()) -> None:
            raise OSError("first")

    first, second = Fails(), Kept()
    monitor = tl.StepMonitor(Mlp(), save="act", sinks=[first, second])
    with pytest.raises(OSError, match="first"):
        monitor.close(Outcome(status="halted", reason="enough"))
    assert second.closed == [Outcome(status="halted", reason="enough")]
    monitor.close()
    assert len(second.closed) == 1 and monitor.next_step == NEVER


def test_a_budget_ends_the_capture() -> None:
    for budget in (Budget(max_captures=2), Budget(max_bytes=2 * 4 * 16 * 4)):
        sink, model = Kept(), Mlp()
        monitor = tl.StepMonitor(model, schedule=1, save="layers.0", sinks=[sink], budget=budget)
        list(run(monitor, model))
        assert len(sink.steps) == 2


def test_a_failing_sink_warns_once_and_the_loop_goes_on() -> None:
    class Fails(Kept):
        def write(self, captured: CapturedStep) -> None:
            raise OSError("disk gone")

    model = Mlp()
    monitor = tl.StepMonitor(model, schedule=1, save="act", sinks=[Fails()], on_error="warn")
    with pytest.warns(UserWarning, match="disk gone") as caught:
        list(run(monitor, model))
    assert len(caught) == 1


def test_a_predicate_that_fails_inside_the_forward_does_not_stop_a_warning_monitor() -> None:
    model = Mlp()
    monitor = tl.StepMonitor(
        model, schedule=1, save=tl.where(lambda event: 1 / 0), sinks=[Kept()], on_error="warn"
    )
    with pytest.warns(UserWarning, match="ZeroDivisionError"):
        list(run(monitor, model))


def test_its_state_is_plain_and_goes_on_where_it_was_taken() -> None:
    import json

    model = Mlp()
    first = tl.StepMonitor(model, schedule="every(3)", save="act", sinks=[Kept()])
    list(run(first, model, steps=4))
    state = json.loads(json.dumps(first.state_dict()))
    sink = Kept()
    second = tl.StepMonitor(model, schedule="every(3)", save="act", sinks=[sink])
    second.load_state_dict(state)
    for _ in range(4):
        with second.step():
            model(torch.randn(1, 16))
    assert [step.moment.step for step in sink.steps] == [6]


def test_history_is_written_when_a_reactive_schedule_fires() -> None:
    class Spikes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 4)

        def forward(self, x: Tensor) -> Tensor:
            return self.layer(x)

    sink, model = Kept(), Spikes()
    schedule = S.always() | S.on_loss_spike(factor=3.0, window=5)
    monitor = tl.StepMonitor(model, schedule=schedule, save="layer", sinks=[sink], history=3)
    for step in range(12):
        with monitor.step(step):
            model(torch.randn(2, 4))
        monitor.observe_loss(100.0 if step == 8 else 1.0)
    steps = [captured.moment.step for captured in sink.steps]
    assert steps == [6, 7, 8, 9]
    assert [captured.records[0].payload is None for captured in sink.steps] == [True, True, True, False]
    assert monitor.captures[9].reason is not None and monitor.captures[8].reason is None


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"save": "layers.9"}, UnknownNameError, "layers.0|layers.1|layers.2"),
        ({"schedule": "evry(3)"}, ScheduleError, "evry"),
        ({"sinks": [3]}, CaptureError, "neither a sink"),
        ({"on_error": "ignore"}, ValueError, "'raise' or 'warn'"),
    ],
)
def test_a_mistake_is_raised_when_the_monitor_is_made(
    arguments: dict[str, Any], error: type[Exception], words: str
) -> None:
    with pytest.raises(error, match=words):
        tl.StepMonitor(Mlp(), **arguments)


def test_needs_are_the_union_of_all_sinks() -> None:
    first = SinkNeeds(summaries=SummaryOptions(statistics=("mean", "std"), histogram_bins=8))
    second = SinkNeeds(payloads=True, summaries=SummaryOptions(statistics=("std", "absmax")))
    union = union_of_needs([first, second])
    assert union.payloads and union.summaries.histogram_bins == 8
    assert union.summaries.statistics == ("mean", "std", "absmax")
    assert union_of_needs([]) == SinkNeeds()
