"""Kept tensors are what they were when captured: never another number, never a crash."""

import gc
import warnings
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import tl_integrations as tl


class Body(nn.Module):
    """A forward given as a function of the input."""

    def __init__(self, body: Any) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: Tensor) -> Any:
        return self.body(x)


def kept(body: Any, x: Tensor, function: str = "relu", **options: Any) -> list[Tensor]:
    taken = tl.record(Body(body), x, save=tl.func(function), **options)
    return [record.out for record in taken]


def through_setitem(y: Tensor) -> None:
    y[0] = 7


WRITES = {
    "method": lambda y: y.add_(1),
    "operator": lambda y: y.__iadd__(1),
    "item": through_setitem,
    "view": lambda y: y[0].zero_(),
    "view_of_view": lambda y: y.view(-1)[1:].t().fill_(3),
    "transposed": lambda y: y.t().mul_(2),
    "out": lambda y: torch.add(y, 1, out=y),
    "out_view": lambda y: torch.add(y[0], 1, out=y[0]),
    "inplace_keyword": lambda y: F.dropout(y, 0.5, True, inplace=True),
    "inplace_position": lambda y: F.elu(y.sub_(5), 1.0, True),
    "data": lambda y: y.data.mul_(0),
    "detached": lambda y: y.detach().mul_(0),
    "numpy": lambda y: np.multiply(y.detach().numpy(), 0, out=y.detach().numpy()),
    "array": lambda y: np.asarray(y.detach()).__setitem__(0, 9),
    "dlpack": lambda y: torch.from_dlpack(y.detach()).zero_(),
    "storage": lambda y: y.untyped_storage().fill_(0),
    "resize": lambda y: y.detach().resize_(0),
    "set": lambda y: y.data.set_(torch.zeros(1)),
    "data_set": lambda y: setattr(y, "data", torch.zeros(2, 2)),
    "index_put": lambda y: y.index_put_((torch.tensor([0]),), torch.tensor(5.0)),
    "copy": lambda y: y.copy_(torch.zeros_like(y)),
    "foreach": lambda y: torch._foreach_add_([y], 1.0),
    "init": lambda y: nn.init.zeros_(y),
    "batch_norm": lambda y: F.batch_norm(torch.randn(5, 3), y[0], y[1].abs_(), training=True),
    "clamp_under_no_grad": lambda y: torch.clamp(y, 0, 0, out=y),
}


@pytest.mark.parametrize("keep", ["alias", "clone"])
@pytest.mark.parametrize("graph", [True, False])
@pytest.mark.parametrize("write", WRITES)
def test_a_later_write_in_the_forward_does_not_reach_the_payload(write: str, graph: bool, keep: Any) -> None:
    x = torch.randn(4, 3)

    def body(x: Tensor) -> Tensor:
        y = torch.relu(x)
        WRITES[write](y)
        return x * 2

    with torch.no_grad():
        (value,) = kept(body, x, graph=graph, keep=keep)
    assert torch.equal(value, x.relu())


def test_what_the_model_returns_is_copied_since_its_owner_may_write_it() -> None:
    x = torch.randn(3)
    taken, out = tl.record(Body(torch.relu), x, save=tl.func("relu"), return_output=True)
    out.data.zero_()
    assert torch.equal(taken[0].out, x.relu())


@pytest.mark.parametrize("what", ["input", "parameter", "buffer", "global", "numpy"])
def test_a_view_of_foreign_memory_is_copied_at_once(what: str) -> None:
    array = np.ones(6, dtype=np.float32)
    foreign = {
        "numpy": torch.from_numpy(array),
        "global": torch.ones(6),
        "parameter": nn.Parameter(torch.ones(6)),
    }
    tensor = foreign.get(what, torch.ones(6))

    def body(x: Tensor) -> Tensor:
        return (x if what == "input" else tensor).view(2, 3) * 1

    taken = tl.record(Body(body), tensor if what == "input" else torch.ones(1), save=tl.func("view"))
    with torch.no_grad():
        tensor.data.fill_(5)
        array.fill(5)
    assert (taken[0].out == 1).all()


def test_a_fused_optimizer_step_after_the_forward_does_not_reach_payloads() -> None:
    net = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
    optimizer = torch.optim.Adam(net.parameters(), fused=True, lr=1.0)
    x = torch.randn(2, 4)
    taken = tl.record(net, x, default_op=True)
    expected = [net[0](x).clone(), net[0](x).relu().clone()]
    taken.output.sum().backward()
    optimizer.step()
    assert all(torch.equal(record.out, e) for record, e in zip(taken[:2], expected, strict=True))


def scripted_write(y: Tensor) -> Tensor:
    return y.add_(1)


def test_an_unseen_write_is_an_error_when_read_not_another_number() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        unseen = torch.jit.script(scripted_write)

    def body(x: Tensor) -> Tensor:
        y = torch.relu(x)
        unseen(y)
        return y * 2

    taken = tl.record(Body(body), torch.randn(3), save=tl.func("relu"))
    with pytest.raises(tl.errors.PayloadOverwrittenError, match='keep="clone"'):
        taken[0].out  # noqa: B018 - reading it is what fails
    x = torch.randn(3)
    assert torch.equal(kept(body, x, keep="clone")[0], x.relu())


def test_memory_that_shrank_after_the_forward_is_an_error_not_a_crash() -> None:
    stash: list[Tensor] = []

    def body(x: Tensor) -> Tensor:
        y = torch.relu(x)
        stash.append(y)
        return y * 2

    taken = tl.record(Body(body), torch.randn(1000), save=tl.func("relu"))
    stash[0].untyped_storage().resize_(0)
    with pytest.raises(tl.errors.PayloadOverwrittenError):
        taken[0].out  # noqa: B018 - reading it is what fails


def test_a_small_view_does_not_pin_a_large_storage() -> None:
    def body(x: Tensor) -> Tensor:
        return (x * 1).relu()[:2] + 1

    (value,) = kept(body, torch.randn(10_000), "getitem")
    assert value.untyped_storage().nbytes() == 8


def test_payloads_are_detached_and_none_stays_alive() -> None:
    net, x = nn.Sequential(nn.Linear(64, 64), nn.ReLU()), torch.randn(32, 64)

    def live() -> int:
        gc.collect()
        return sum(issubclass(type(o), Tensor) for o in gc.get_objects())

    counts = []
    for _ in range(30):
        taken = tl.record(net, x, save=tl.func("relu"))
        assert taken[0].out.grad_fn is None and not taken[0].out.requires_grad
        del taken
        counts.append(live())
    assert counts[-1] - counts[10] <= 2


@pytest.mark.parametrize("options", [{"graph": False}, {"graph": True}, {"keep": "clone"}])
def test_inference_tensors_are_kept_as_ordinary_ones(options: dict[str, Any]) -> None:
    x = torch.randn(3)
    with torch.inference_mode():
        taken = tl.record(Body(lambda x: torch.relu(x) * 2), x, save=tl.func("relu"), **options)
    value = taken[0].out
    assert torch.equal(value, x.relu()) and not value.is_inference()


SPECIAL = [
    torch.tensor([float("nan"), float("inf"), -0.0, 1e-40]),
    torch.randn(3).to(torch.bfloat16),
    torch.randn(3).to(torch.float8_e4m3fn),
    torch.randn(2, dtype=torch.complex128),
    torch.tensor([True, False]),
    torch.tensor([1, 2, 65535], dtype=torch.uint16),
    torch.empty(0, 3),
    torch.tensor(1.5),
    torch.randn(2, dtype=torch.complex64).conj(),
    torch.randn(2, dtype=torch.complex64).conj().imag,
    torch.ones(1).expand(4),
    torch.randn(1, 2, 3, 3).contiguous(memory_format=torch.channels_last),
    torch.randn(2, 3).to_sparse(),
]


@pytest.mark.parametrize("tensor", SPECIAL, ids=lambda t: f"{t.dtype}-{t.layout}-{tuple(t.shape)}")
@pytest.mark.parametrize("keep", ["alias", "clone"])
def test_every_dtype_and_layout_is_kept_bit_for_bit(tensor: Tensor, keep: Any) -> None:
    taken = tl.record(Body(lambda x: (x.clone(), 1)[0].clone()), tensor, save=tl.func("clone"), keep=keep)
    for record in taken:
        value = record.out
        assert value.dtype == tensor.dtype and value.shape == tensor.shape and value.layout == tensor.layout
        if tensor.layout is torch.strided:
            left, right = value.resolve_conj().resolve_neg(), tensor.resolve_conj().resolve_neg()
            assert (
                left.contiguous().numpy(force=True).tobytes()
                == right.contiguous().numpy(force=True).tobytes()
                if tensor.dtype not in (torch.bfloat16, torch.float8_e4m3fn)
                else torch.equal(
                    left.view(torch.uint8 if tensor.element_size() == 1 else torch.int16),
                    right.view(torch.uint8 if tensor.element_size() == 1 else torch.int16),
                )
            )


def test_meta_tensors_give_records_without_data() -> None:
    with torch.device("meta"):
        net = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
    taken = tl.record(net, torch.randn(2, 4, device="meta"), save=tl.func("relu"))
    assert taken[0].shape == (2, 4) and taken[0].device == "meta" and taken[0].payload is None


def test_a_subclass_keeps_its_values() -> None:
    class Tagged(Tensor):
        pass

    x = torch.randn(3).as_subclass(Tagged)
    taken, out = tl.record(Body(lambda x: torch.relu(x) * 2), x, save=tl.func("relu"), return_output=True)
    assert type(out) is Tagged and torch.equal(taken[0].out, torch.relu(x.as_subclass(Tensor)))


def test_a_transform_gets_a_copy_and_its_result_is_kept() -> None:
    def halved(t: Tensor) -> Tensor:
        return t.mul_(0.5)

    x = torch.randn(3)
    taken, out = tl.record(
        Body(lambda x: torch.relu(x) + 0),
        x,
        save=tl.func("relu"),
        activation_transform=halved,
        return_output=True,
    )
    assert torch.equal(taken[0].out, x.relu() * 0.5) and torch.equal(out, x.relu())


def test_backward_ready_payloads_stay_on_the_graph() -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), torch.randn(2, 3)
    taken = tl.record(net, x, save=tl.func("relu"), backward_ready=True)
    assert len(taken) == 1
    taken[0].out.sum().backward()
    assert net[0].weight.grad is not None


def test_gradients_add_up_over_backwards_and_survive_later_writes() -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)), torch.randn(2, 3)
    taken = tl.record(net, x, save=tl.func("relu"), gradients=True)
    taken.backward(taken.output.sum(), retain_graph=True)
    once = taken[0].grad.clone()
    taken.backward(taken.output.sum())
    torch.nn.utils.clip_grad_norm_(net.parameters(), 1e-3)
    assert torch.equal(taken[0].grad, once * 2)
    assert torch.equal(once, net[2].weight.expand(2, 3))


def test_a_gradient_of_an_activation_that_is_written_later_is_that_of_its_own_version() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            y = self.layer(x)
            y.mul_(3)
            return y.sum()

    taken = tl.record(Writes(), torch.randn(2, 3), save=tl.func("linear"), gradients=True)
    taken.backward(taken.output)
    assert torch.equal(taken[0].grad, torch.full((2, 3), 3.0))


def test_save_grads_narrows_whose_gradient_is_kept() -> None:
    net, x = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1)), torch.randn(2, 3)
    taken = tl.record(net, x, default_op=True, save_grads=tl.func("relu"))
    taken.backward(taken.output.sum())
    assert [record.grad is not None for record in taken] == [False, True, False]
    taken = tl.record(net, x, default_op=True, save_grads=True)
    taken.backward(taken.output.sum())
    assert all(record.grad is not None for record in taken)


def test_interventions_are_refused() -> None:
    with pytest.raises(tl.errors.OptionError, match="out of scope"):
        tl.record(nn.ReLU(), torch.ones(1), save=tl.func("relu"), intervene=lambda t: t)  # type: ignore[call-overload]
