"""A captured step, run again from the bundle's own config."""

from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner
from torch import Tensor, nn

import tl_integrations as tl
from tl_integrations import cli
from tl_integrations import language as L
from tl_integrations.capture.events import Moment
from tl_integrations.capture.protocols import SinkContext
from tl_integrations.errors import ConfigError, RecordLookupError, UntrustedTargetError
from tl_integrations.launch.rerun import largest_difference, rerun

STEP = 100
NET = {
    "_target_": "torch.nn.Sequential",
    "_args_": [
        {"_target_": "torch.nn.Linear", "in_features": 4, "out_features": 8},
        {"_target_": "torch.nn.ReLU"},
        {"_target_": "torch.nn.Linear", "in_features": 8, "out_features": 2},
    ],
}


def captured(path: Path, model: nn.Module, batch: Tensor, *, config: Any = NET, **options: Any) -> Path:
    """A bundle with one step of `model` on `batch`."""
    recorder = tl.Recorder(model, **{"save": "*", "graph": False, **options})
    with recorder.watch(Moment(step=STEP)):
        model(batch)
    sink = tl.to_disk(path).open(SinkContext(config=config))
    sink.write(recorder.drain())
    sink.close()
    return path


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    return L.instantiate(NET)


@pytest.fixture
def batch() -> Tensor:
    return torch.randn(3, 4)


def test_the_same_weights_and_batch_give_the_same_activations(
    tmp_path: Path, model: nn.Module, batch: Tensor
) -> None:
    bundle = captured(tmp_path / "run.tlspec", model, batch)
    outcome = rerun(bundle, step=STEP, batch=batch, checkpoint=model.state_dict())
    assert outcome.first_difference is None
    assert [one.name for one in outcome.replayed] == ["0", "1", "2"]
    assert all(one.difference == 0 for one in outcome.replayed)
    assert str(outcome).splitlines()[-1] == "step 100: 3 of 3 the same; no difference"


def test_the_first_difference_is_where_the_weights_differ(
    tmp_path: Path, model: nn.Module, batch: Tensor
) -> None:
    bundle = captured(tmp_path / "run.tlspec", model, batch)
    weights = {name: value.clone() for name, value in model.state_dict().items()}
    weights["2.bias"] += 0.5
    outcome = rerun(bundle, step=STEP, batch=batch, checkpoint={"state_dict": weights})
    assert outcome.first_difference.name == "2"
    assert outcome.first_difference.difference == pytest.approx(0.5)
    assert [one.same for one in outcome.replayed] == [True, True, False]
    assert rerun(bundle, step=STEP, batch=batch, checkpoint=weights, tolerance=0.6).first_difference is None


def test_another_batch_shape_is_a_difference_in_words(
    tmp_path: Path, model: nn.Module, batch: Tensor
) -> None:
    bundle = captured(tmp_path / "run.tlspec", model, batch)
    outcome = rerun(bundle, step=STEP, batch=batch[:2], checkpoint=model.state_dict())
    assert outcome.first_difference.text == "shape (3, 8) recorded, (2, 8) replayed"


def test_ops_are_found_again_by_their_labels(tmp_path: Path, model: nn.Module, batch: Tensor) -> None:
    bundle = captured(tmp_path / "run.tlspec", model, batch, save=tl.func("relu"), graph=True)
    outcome = rerun(bundle, step=STEP, batch=batch, checkpoint=model.state_dict())
    assert [(one.name, one.same) for one in outcome.replayed] == [("relu_1_2", True)]


def test_what_cannot_be_found_again_is_counted(tmp_path: Path, model: nn.Module, batch: Tensor) -> None:
    bundle = captured(tmp_path / "run.tlspec", model, batch, save=tl.func("relu"))
    outcome = rerun(bundle, step=STEP, batch=batch, checkpoint=model.state_dict())
    assert (outcome.skipped, outcome.replayed) == (1, ())
    assert "1 not comparable" in str(outcome)


def test_a_bundle_without_config_or_step_is_an_error(tmp_path: Path, model: nn.Module, batch: Tensor) -> None:
    bundle = captured(tmp_path / "run.tlspec", model, batch, config=None)
    with pytest.raises(ConfigError, match="carries no config"):
        rerun(bundle, step=STEP, batch=batch)
    with pytest.raises(RecordLookupError, match="Step 7"):
        rerun(bundle, step=7, batch=batch)


def test_targets_of_a_bundle_run_only_when_allowed(tmp_path: Path, model: nn.Module, batch: Tensor) -> None:
    config = {"_target_": "builtins.open", "file": str(tmp_path / "written"), "mode": "w"}
    bundle = captured(tmp_path / "run.tlspec", model, batch, config=config)
    with pytest.raises(UntrustedTargetError):
        rerun(bundle, step=STEP, batch=batch, allow=["builtins.*"])
    assert not (tmp_path / "written").exists()


def test_the_command_reads_files_and_exits_with_what_it_found(
    tmp_path: Path, model: nn.Module, batch: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    captured(tmp_path / "run.tlspec", model, batch)
    torch.save(batch, "batch.pt")
    torch.save({"state_dict": model.state_dict()}, "good.ckpt")
    nn.init.zeros_(model[2].weight)
    torch.save(model.state_dict(), "bad.ckpt")
    command = ["rerun", "run.tlspec", "--step", "100", "--batch", "batch.pt", "--checkpoint"]
    good = CliRunner().invoke(cli.main, [*command, "good.ckpt"])
    assert (good.exit_code, good.output.splitlines()[-1]) == (0, "step 100: 3 of 3 the same; no difference")
    bad = CliRunner().invoke(cli.main, [*command, "bad.ckpt"])
    assert bad.exit_code == 1
    assert "first difference: 2" in bad.output
    wrong = CliRunner().invoke(cli.main, [*command, "good.ckpt", "--stage", "test"])
    assert wrong.exit_code == 2
    assert "Step 100 in stage 'test' was not captured" in wrong.output


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([1.0, torch.nan], [1.0, torch.nan], 0.0),
        ([1.0, torch.nan], [1.0, 2.0], torch.inf),
        ([torch.inf], [torch.inf], 0.0),
        ([torch.inf], [-torch.inf], torch.inf),
        ([True], [False], 1.0),
        ([1 + 2j], [1 - 2j], 4.0),
    ],
)
def test_differences_are_told_also_for_odd_values(a: list[Any], b: list[Any], expected: float) -> None:
    assert largest_difference(torch.tensor(a), torch.tensor(b)) == expected
