"""Small files are written whole or not at all."""

from pathlib import Path

import pytest

from tl_integrations.language.files import write_whole


def test_a_file_is_replaced_and_its_folder_made(tmp_path: Path) -> None:
    path = tmp_path / "new" / "a.txt"
    for text in ("one\n", "two\r\nä"):
        write_whole(path, text)
        assert path.read_bytes().decode() == text
    assert [each.name for each in path.parent.iterdir()] == ["a.txt"]


def test_a_file_that_cannot_be_replaced_leaves_no_part_of_it(tmp_path: Path) -> None:
    (tmp_path / "a.txt" / "inside").mkdir(parents=True)
    with pytest.raises(OSError):
        write_whole(tmp_path / "a.txt", "text")
    assert [each.name for each in tmp_path.iterdir()] == ["a.txt"]


def test_a_text_that_cannot_be_encoded_leaves_the_old_file(tmp_path: Path) -> None:
    write_whole(tmp_path / "a.txt", "old")
    with pytest.raises(UnicodeEncodeError):
        write_whole(tmp_path / "a.txt", "\ud800")
    assert (tmp_path / "a.txt").read_text() == "old" and len(list(tmp_path.iterdir())) == 1
