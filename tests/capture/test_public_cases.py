"""Inputs from public bug reports of tools that do this job; each is one kind of fault."""

import warnings
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import tl_integrations as tl


def test_bfloat16_under_autocast_stays_bfloat16_in_memory_and_on_disk(tmp_path: Path) -> None:
    net, x = nn.Linear(4, 4), torch.randn(2, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        tl.record(net, x, save=tl.func("linear"), storage=tl.to_disk(tmp_path / "a.tlspec"))
        back = tl.load(tmp_path / "a.tlspec")[0].out
        assert back.dtype == torch.bfloat16 and torch.equal(back, net(x))


def test_what_is_stored_is_the_value_at_capture_time(tmp_path: Path) -> None:
    class Scales(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.ones(1 << 16))

        def forward(self, x: Tensor) -> Tensor:
            return torch.relu(self.w * x)

    model = Scales()
    tl.record(model, torch.ones(1), save=lambda event: True, storage=tl.to_disk(tmp_path / "a.tlspec"))
    with torch.no_grad():
        model.w.fill_(7.0)
    assert all((record.out == 1).all() for record in tl.load(tmp_path / "a.tlspec"))


def test_two_equal_models_are_recorded_apart() -> None:
    a, b, x = nn.Linear(3, 3), nn.Linear(3, 3), torch.randn(2, 3)
    ra, rb = tl.record(a, x, save=tl.func("linear")), tl.record(b, x, save=tl.func("linear"))
    assert torch.equal(ra[0].out, a(x)) and torch.equal(rb[0].out, b(x))


def test_a_users_hook_fires_once_per_forward_and_can_be_removed() -> None:
    net, x, hits = nn.Linear(3, 3), torch.randn(1, 3), []
    handle = net.register_forward_hook(lambda *args: hits.append(1))
    tl.record(net, x, save=tl.func("linear"))
    tl.trace(net, x, save=tl.func("linear"))
    assert len(hits) == 2
    net(x)
    assert len(hits) == 3
    handle.remove()
    net(x)
    assert len(hits) == 3


def test_what_was_recorded_can_be_read_at_once(tmp_path: Path) -> None:
    for k in range(5):
        path = tmp_path / f"{k}.tlspec"
        tl.record(nn.Linear(64, 64), torch.randn(512, 64), save=tl.func("linear"), storage=tl.to_disk(path))
        assert tl.load(path)[0].shape == (512, 64)


def test_a_fused_layer_gives_as_many_records_in_evaluation_as_in_training() -> None:
    model = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True)
    x = torch.randn(2, 5, 16)
    trained = tl.record(model.train(), x, save=tl.func("linear"))
    model.eval()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        expected = model(x)
        taken, out = tl.record(model, x, save=tl.func("linear"), return_output=True)
        assert torch.equal(model(x), expected)
    assert len(taken) == len(trained) >= 2 and torch.allclose(out, expected, atol=1e-5)


@pytest.mark.parametrize("save", [tl.func("relUU"), tl.in_module("nope"), "nope", "nope.*"])
def test_a_name_that_does_not_exist_is_never_an_empty_result(save: object) -> None:
    with pytest.raises(tl.errors.UnknownNameError):
        tl.record(nn.Sequential(nn.Linear(2, 2)), torch.randn(1, 2), save=save)
