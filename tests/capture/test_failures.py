"""Forwards and predicates that fail: what is raised, and what the partial recording says."""

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import tl_integrations as tl


class Fails(nn.Module):
    """linear, relu, add, sum, gt, then a view that cannot be."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor, fail: bool = True) -> Tensor:
        h = torch.relu(self.layer(x)) + 1
        if h.sum() > -1e9 and fail:
            h = h.view(3, 7)
        return h


X = torch.randn(2, 4)


def test_raise_is_the_default_and_changes_nothing_of_the_exception() -> None:
    with pytest.raises(RuntimeError, match="shape") as caught:
        tl.record(Fails(), X, save=tl.func("relu"))
    assert not hasattr(caught.value, "partial_recording")


def test_attach_partial_adds_the_partial_to_the_same_exception() -> None:
    with pytest.raises(RuntimeError, match="shape") as caught:
        tl.record(Fails(), X, save=tl.func("relu"), on_forward_error="attach_partial")
    assert_partial(caught.value.partial_recording)


def test_return_partial_returns_it() -> None:
    taken, out = tl.record(
        Fails(), X, save=tl.func("relu"), on_forward_error="return_partial", return_output=True
    )
    assert out is None
    assert_partial(taken)


def assert_partial(taken: tl.Recording) -> None:
    assert taken.status == "partial_error" and taken.failed
    assert "shape '[3, 7]'" in taken.error_repr and "in forward" in taken.error_traceback
    assert taken.num_committed_ops == 5
    assert taken.last_successful_op_label == taken.last_event_label == "gt_1_6_raw"
    assert taken.last_event_func == "view" and taken.last_event_input_meta == "((2, 4), int, int)"
    assert taken.last_event_source_line is not None and "test_failures.py" in taken.last_event_source_line
    assert len(taken) == 1 and taken[0].out.shape == (2, 4)
    for refused, code in (
        (lambda: taken.output, "output_forward_failed"),
        (lambda: taken.to_trace(), "recording_failed_not_convertible"),
        (lambda: taken.backward(torch.ones(1, requires_grad=True).sum()), "backward_forward_failed"),
    ):
        with pytest.raises(tl.errors.RecordingFailedError) as caught:
            refused()
        assert caught.value.code == code


def test_a_manual_recorder_returns_none_and_shows_the_partial() -> None:
    recorder = tl.Recorder(Fails(), save=tl.func("relu"), on_forward_error="return_partial")
    assert recorder(X, {"fail": False}) is not None
    assert recorder(X) is None
    assert recorder.recording.failed and len(recorder.recording) == 2
    with pytest.raises(tl.errors.RecorderStateError, match="new Recorder"):
        recorder(X)


def test_without_a_graph_the_partial_says_what_it_knows() -> None:
    taken = tl.record(Fails(), X, save=tl.func("relu"), graph=False, on_forward_error="return_partial")
    assert taken.failed and len(taken) == 1 and taken.num_committed_ops is None


def test_the_forwards_error_wins_over_a_predicates() -> None:
    def bad(event: Any) -> bool:
        raise ValueError("predicate")

    with pytest.raises(RuntimeError, match="shape"):
        tl.record(Fails(), X, save=bad)


def test_accumulated_predicate_errors_are_counted_and_capped() -> None:
    def bad(event: Any) -> bool:
        raise ValueError(event.label)

    with pytest.raises(tl.errors.PredicateError, match="5 events") as caught:
        tl.record(Fails(), X, {"fail": False}, save=bad, max_predicate_failures=2)
    assert [str(e) for e in caught.value.failures] == ["linear_1", "relu_1"]
    assert caught.value.total_count == 5 and caught.value.overflow


def test_fail_fast_raises_the_users_exception_at_once() -> None:
    seen: list[str] = []

    def bad(event: Any) -> bool:
        seen.append(event.label)
        raise ValueError("mine")

    with pytest.raises(ValueError, match="mine") as caught:
        tl.record(Fails(), X, save=bad, on_predicate_error="fail_fast")
    assert seen == ["linear_1"] and any("where" in note for note in caught.value.__notes__)


@pytest.mark.parametrize("answer", [1, "yes", torch.tensor(True), 0.0])
def test_a_predicate_that_answers_something_else_is_refused_with_the_value(answer: Any) -> None:
    with pytest.raises(tl.errors.PredicateError, match=r"returned .* Return True, False, None"):
        tl.record(Fails(), X, {"fail": False}, save=lambda event: answer)


def test_none_leaves_the_answer_to_default_op() -> None:
    taken = tl.record(Fails(), X, {"fail": False}, save=lambda event: None, default_op=True)
    assert [record.label for record in taken] == ["linear_1_1", "relu_1_2", "add_1_3", "sum_1_4", "gt_1_5"]
    with pytest.warns(UserWarning, match="kept nothing"):
        assert len(tl.record(Fails(), X, {"fail": False}, save=lambda event: None)) == 0


def test_a_capture_spec_says_how_to_keep() -> None:
    spec = tl.options.CaptureSpec
    answers = {
        "linear": spec(dtype=torch.float16),
        "relu": spec(save_out=False),
        "add": spec(keep_grad=True),
    }
    taken = tl.record(Fails(), X, {"fail": False}, save=lambda event: answers.get(event.type, False))
    linear, relu, add = taken
    assert linear.out.dtype == torch.float16 and linear.dtype == torch.float32
    with pytest.raises(tl.errors.PayloadUnavailableError, match="not kept"):
        relu.out  # noqa: B018 - reading it is what fails
    assert add.out.requires_grad and add.out.grad_fn is not None


def test_nothing_to_capture_is_an_error() -> None:
    with pytest.raises(tl.errors.SelectorError, match="Nothing would be captured"):
        tl.record(Fails(), X)


@pytest.mark.parametrize(
    ("option", "value"),
    [("keep", "view"), ("on_forward_error", "ignore"), ("on_predicate_error", "never")],
)
def test_an_option_that_is_none_of_its_values_is_refused(option: str, value: str) -> None:
    with pytest.raises(tl.errors.OptionError, match=rf"{option}='{value}'"):
        tl.record(Fails(), X, save=tl.func("relu"), **{option: value})


def test_halt_ends_the_forward_in_order() -> None:
    taken = tl.record(Fails(), X, save=tl.func("linear"), halt=lambda event: event.type == "relu")
    assert taken.halted and taken.status == "halted" and taken.halt_reason == "relu_1"
    assert len(taken) == 1 and taken.output is None
    with pytest.raises(tl.errors.RecordingFailedError, match="did not end"):
        taken.backward(torch.ones(1, requires_grad=True).sum())


def test_halt_passes_a_models_own_except() -> None:
    class Catches(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            try:
                return torch.relu(x)
            except Exception:
                return x

    assert tl.record(Catches(), X, save=tl.func("relu"), halt=lambda event: True).halted


def test_halt_must_answer_true_or_false() -> None:
    with pytest.raises(tl.errors.PredicateError, match="Return True or False"):
        tl.record(Fails(), X, {"fail": False}, save=tl.func("relu"), halt=lambda event: 1)


def test_a_closed_recorder_says_so() -> None:
    with tl.Recorder(Fails(), save=tl.func("relu")) as recorder:
        recorder(X, {"fail": False})
    with pytest.raises(tl.errors.RecorderStateError, match="closed"):
        recorder(X)


def test_a_recorder_does_not_watch_twice_at_once() -> None:
    recorder = tl.Recorder(Fails(), save=tl.func("relu"))
    with recorder.watch(), pytest.raises(tl.errors.RecorderStateError, match="watching already"):
        recorder(X)


def test_discard_forgets_and_never_raises() -> None:
    def bad(event: Any) -> bool:
        raise ValueError("mine")

    model = Fails()
    recorder = tl.Recorder(model, save=bad, on_predicate_error="accumulate")
    with recorder.watch():
        model(X, fail=False)
    recorder.discard()
    assert recorder.drain().records == ()


def test_drain_raises_what_a_predicate_raised() -> None:
    def bad(event: Any) -> bool:
        raise ValueError("mine")

    model = Fails()
    recorder = tl.Recorder(model, save=bad, on_predicate_error="accumulate")
    with recorder.watch():
        model(X, fail=False)
    with pytest.raises(tl.errors.PredicateError, match="mine"):
        recorder.drain()
    assert recorder.drain().records == ()
