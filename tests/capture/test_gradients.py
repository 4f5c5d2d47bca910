"""A gradient that was asked for is there, or its record says why it is not."""

import warnings
from collections.abc import Callable

import pytest
import torch
from observed_models import Checkpointed
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import tl_integrations as tl
from tl_integrations.capture import gradients as why
from tl_integrations.capture.events import Record

MODES = pytest.mark.parametrize(
    ("save", "graph"), [("**", False), ("func('relu')", False), ("func('relu')", True)]
)


class Body(nn.Module):
    """A forward given as a function of the input."""

    def __init__(self, body: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Tensor:
        return self.body(x)


def under_no_grad(x: Tensor) -> Tensor:
    with torch.no_grad():
        return torch.relu(x)


def in_inference_mode(x: Tensor) -> Tensor:
    with torch.inference_mode():
        return torch.relu(x)


WITHOUT: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "no_grad": (under_no_grad, why.NO_GRAD),
    "inference mode": (in_inference_mode, why.INFERENCE),
    "integers": (lambda x: torch.relu(x.long()), "its dtype is int64"),
    "detached": (lambda x: torch.relu(x.detach()), why.NOT_CONNECTED),
    "not in the loss": (torch.relu, why.NOT_YET),
    "recomputed": (lambda x: checkpoint(torch.relu, x, use_reentrant=True), why.RECOMPUTED),
}


@pytest.mark.filterwarnings("ignore:Tensors inside a checkpoint:UserWarning")
@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("case", WITHOUT)
def test_a_record_says_why_it_has_no_gradient(case: str, graph: bool) -> None:
    body, reason = WITHOUT[case]
    x = torch.randn(3, requires_grad=True)
    model = Body(lambda x: body(x).float() * 0 + x if case != "not in the loss" else (body(x), x * 2)[1])
    taken, out = tl.record(model, x, save=tl.func("relu"), gradients=True, graph=graph, return_output=True)
    taken.backward(out.sum())
    assert taken[0].grad is None and taken[0].gradient is not None
    assert taken[0].gradient.reason == reason


def test_a_gradient_that_arrived_has_no_reason_to_be_missing() -> None:
    x = torch.randn(3, requires_grad=True)
    taken = tl.record(Body(torch.relu), x, save=tl.func("relu"), gradients=True)
    taken.backward(taken.output.sum())
    assert taken[0].gradient is not None and taken[0].gradient.reason == ""
    assert torch.equal(taken[0].grad, torch.ones(3))


def test_a_step_handed_over_before_its_backward_says_so() -> None:
    recorder = tl.Recorder(Body(torch.relu), save=tl.func("relu"), gradients=True)
    with recorder.watch():
        out = recorder.model(torch.randn(3, requires_grad=True))
    (record,) = recorder.drain().records
    out.sum().backward()
    assert record.grad is None and record.gradient is not None
    assert record.gradient.reason == why.NOT_IN_TIME


def test_gradients_that_were_not_asked_for_are_no_gradients_without_a_reason() -> None:
    x = torch.randn(3, requires_grad=True)
    taken = tl.record(Body(lambda x: x.relu().exp()), x, default_op=True, save_grads=tl.func("relu"))
    taken.backward(taken.output.sum())
    assert [record.gradient is None for record in taken] == [False, True]


def inside_block(record: Record) -> bool:
    return record.address.startswith("block")


@MODES
@pytest.mark.parametrize("training_loop", [True, False])
def test_a_reentrant_checkpoint_is_warned_of_once_and_named(
    save: str, graph: bool, training_loop: bool
) -> None:
    model = Checkpointed(reentrant=True)
    recorder = tl.Recorder(model, save=save, graph=graph, gradients=True)
    x = torch.randn(2, 6, requires_grad=True)
    for step in range(2):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            if training_loop:
                with recorder.watch():
                    model(x).sum().backward()
                records = recorder.drain().records
            else:
                recorder.log(x).sum().backward()
                records = recorder.recording.records[-5 if save == "**" else -2 :]
        texts = [str(warning.message) for warning in said if "use_reentrant=False" in str(warning.message)]
        assert len(texts) == (1 if step == 0 else 0)
        reasons = {record.gradient.reason for record in records if record.gradient and inside_block(record)}
        assert reasons == {why.RECOMPUTED}
        outside = [record for record in records if not inside_block(record)]
        assert all(record.grad is not None for record in outside)


@MODES
def test_a_checkpoint_of_the_other_kind_has_the_gradients_of_none(save: str, graph: bool) -> None:
    model = Checkpointed(reentrant=False).eval()
    x = torch.randn(2, 6, requires_grad=True)
    recorder = tl.Recorder(model, save=save, graph=graph, gradients=True)
    with recorder.watch():
        model(x).sum().backward()
    records = recorder.drain().records
    y = x * 1.0
    activations = [y]
    for layer in model.block:
        activations.append(layer(activations[-1]))
        activations[-1].retain_grad()
    torch.relu(activations[-1]).sum().backward()
    expected = {f"block.{k}": t.grad for k, t in enumerate(activations[1:])}
    inside = [record for record in records if record.address in expected and record.kind == "module"]
    inside = inside or [record for record in records if record.address == "block.1"]
    assert inside and all(torch.equal(record.grad, expected[record.address]) for record in inside)
