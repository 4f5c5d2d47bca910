"""Every picture is drawn from rows, labelled and small."""

from pathlib import Path

import plots
import pytest
from results import Results, Row


def rows_for(name: str) -> list[Row]:
    picture = plots.PICTURES[name]
    cases = ("10 ops", "1,000 ops") if name == "scaling" else ("a model", "another")
    return [
        Row(section=name, table=picture.table, case=case, way=way, value=0.001 * (k + 1), ratio=1.0 + k)
        for case in cases
        for k, way in enumerate(("plain", "ours", "theirs"))
    ]


@pytest.mark.parametrize("name", plots.PICTURES)
def test_a_picture_is_drawn_from_its_rows(name: str, tmp_path: Path) -> None:
    found = Results(versions={}, rows=rows_for(name))
    assert plots.draw(found, tmp_path) == [tmp_path / f"{name}.png"]
    assert 5_000 < (tmp_path / f"{name}.png").stat().st_size < 80_000


def test_the_stored_pictures_are_small() -> None:
    stored = list((Path(__file__).parent / "plots").glob("*.png"))
    assert {path.stem for path in stored} == set(plots.PICTURES)
    assert all(path.stat().st_size < 80_000 for path in stored)
