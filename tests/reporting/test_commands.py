"""`tl-integrations compare` and `tensorboard` on bundles and checkpoints."""

import json
from pathlib import Path

import pytest
import torch
from bundles import bundle, step
from click.testing import CliRunner, Result
from safetensors.torch import save_file
from torch import nn

from tests.reporting.captures import board, scalars, text
from tl_integrations.capture.protocols import SinkContext
from tl_integrations.cli import main
from tl_integrations.storage import to_disk


def call(*arguments: object) -> Result:
    return CliRunner().invoke(main, [str(each) for each in arguments])


def test_two_steps_of_a_bundle_are_compared(tmp_path: Path) -> None:
    run = bundle(tmp_path / "run.tlspec")
    result = call("compare", run, run, "--step", 0, "--other-step", 2)
    assert result.exit_code == 0 and "0 -> 2" in result.output and "change" in result.output


def test_a_comparison_is_json_for_scripts(tmp_path: Path) -> None:
    one, two = bundle(tmp_path / "a.tlspec", steps=[0, 1]), bundle(tmp_path / "b.tlspec", steps=[1, 2])
    result = json.loads(call("compare", one, two, "--json").output)
    assert result["identical"] and {row["step"] for row in result["differences"]} == {1}


def test_checkpoints_of_torch_and_safetensors_are_compared(tmp_path: Path) -> None:
    model = nn.Linear(3, 2)
    torch.save({"state_dict": model.state_dict(), "epoch": 1}, tmp_path / "a.ckpt")
    save_file({name: 2 * value for name, value in model.state_dict().items()}, tmp_path / "b.safetensors")
    result = json.loads(call("compare", tmp_path / "a.ckpt", tmp_path / "b.safetensors", "--json").output)
    assert [row["change"] for row in result["differences"]] == pytest.approx([1, 1])


def test_a_comparison_can_be_looked_at_in_tensorboard(tmp_path: Path) -> None:
    run = bundle(tmp_path / "run.tlspec")
    assert call("compare", run, run, "--tensorboard", tmp_path / "board").exit_code == 0
    assert "compare/cka" in board(tmp_path / "board").Tags()["images"]


class Evil:
    def __reduce__(self) -> tuple[object, ...]:
        return (Path.touch, (Path("ran"),))


@pytest.mark.parametrize("content", [Evil(), [1, 2], {"epoch": 3}])
def test_a_checkpoint_that_is_no_plain_tensors_is_refused_unread(
    content: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(content, "a.ckpt")
    result = call("compare", "a.ckpt", "a.ckpt")
    assert result.exit_code == 2 and "a.ckpt" in result.output and not Path("ran").exists()


def test_a_step_that_was_not_captured_is_one_clear_error(tmp_path: Path) -> None:
    run = bundle(tmp_path / "run.tlspec")
    result = call("compare", run, run, "--step", 77)
    assert result.exit_code == 2 and "Step 77" in result.output and "Traceback" not in result.output


def test_a_bundle_becomes_event_files_after_the_fact(tmp_path: Path) -> None:
    context = SinkContext(config={"_target_": "my_app.build", "width": 3})
    run = bundle(tmp_path / "run.tlspec", steps=[0, 10, 20], context=context)
    result = call("tensorboard", run)
    folder = tmp_path / "run.tlspec.tensorboard"
    assert result.exit_code == 0 and f"tensorboard --logdir {folder}" in result.output
    read = board(folder)
    mean = (torch.arange(5.0) + 1000 + 10).mean().item()
    (tag,) = (tag for tag in read.Tags()["scalars"] if tag.startswith("act_mean/") and "relu_1" in tag)
    assert sorted(scalars(read, tag)) == [0, 10, 20] and scalars(read, tag)[10] == pytest.approx(mean)
    assert [event.histogram_value.num for event in read.Histograms(tag.replace("mean", "hist"))] == [5, 5, 5]
    assert "heat_map/act_std" in read.Tags()["images"] and "my_app.build" in text(read, "config")


def test_events_are_not_mixed_with_others(tmp_path: Path) -> None:
    run = bundle(tmp_path / "run.tlspec")
    assert call("tensorboard", run, "--out", tmp_path / "board").exit_code == 0
    again = call("tensorboard", run, "--out", tmp_path / "board")
    assert again.exit_code == 2 and "Name another folder" in again.output
    assert len(list((tmp_path / "board").iterdir())) == 1


def test_show_says_in_words_what_looks_wrong_in_a_bundle(tmp_path: Path) -> None:
    path = tmp_path / "run.tlspec"
    with to_disk(path).open(SinkContext()) as sink:
        for number in (0, 10):
            broken = torch.tensor([torch.nan, 1.0]) if number else torch.tensor([0.5, 1.0])
            sink.write(step(number, {"linear_1_1": torch.randn(4), "relu_1_2": broken}))
    shown = call("show", path).output
    assert "std over steps" in shown and "threshold 0" in shown.replace("\n", " ")
    assert "first layer that is not finite" in shown.replace("\n", " ")
    health = json.loads(call("show", path, "--json").output)["health"]
    assert [finding["rule"] for finding in health["findings"]] == ["nonfinite"]
    assert health["findings"][0]["step"] == 10


def test_a_bundle_is_not_compared_with_a_checkpoint(tmp_path: Path) -> None:
    (tmp_path / "run.tlspec").mkdir()
    (tmp_path / "last.ckpt").write_bytes(b"")
    done = CliRunner().invoke(main, ["compare", str(tmp_path / "last.ckpt"), str(tmp_path / "run.tlspec")])
    assert done.exit_code == 2
    assert "run.tlspec is a bundle and" in done.output and "last.ckpt a checkpoint file" in done.output
