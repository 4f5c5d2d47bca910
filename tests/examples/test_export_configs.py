"""The export is current, an edit by hand is found, and a new export mends it."""

from pathlib import Path

import pytest


def test_an_edit_by_hand_makes_the_check_fail(
    example, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "conf"
    assert example("export_configs").main(folder) == [0, 0, 1, 0, 0]
    said = capsys.readouterr().out
    assert "-depth: 5\n+depth: 2\n" in said
    assert "assert_configs_current: hand-edited: model/mlp.yaml" in said
    assert "depth: 2" in (folder / "model" / "mlp.yaml").read_text()
