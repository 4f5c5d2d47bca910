"""What was frozen did not change, and the numbers are those of arithmetic that is not the product's."""

from pathlib import Path

import pytest
import torch


def test_the_frozen_layer_is_untouched_and_the_head_forgot(
    example, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    module = example("compare_checkpoints")
    found = module.main(tmp_path)
    assert [each.layer for each in found if each.change == 0] == ["first", "relu"]
    said = capsys.readouterr().out
    assert "untouched             first, relu\n" in said
    assert "100% before, 0% after" in said

    images, _ = module.images_of(0, 1, 2, 3, 4)
    answers = []
    for name in ("before.pt", "after.pt"):
        net = module.network()
        net.load_state_dict(torch.load(tmp_path / name, weights_only=True))
        answers.append(net(images).double())
    change = (answers[1] - answers[0]).norm() / answers[0].norm()
    assert found["head"].change == pytest.approx(change.item(), rel=1e-6)
