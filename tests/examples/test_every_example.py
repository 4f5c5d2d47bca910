"""What every example has in common: a question, how to run it, what it prints, and a row in the README."""

import ast
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
PARTS = ("digits_configs", "digits_models")
"""Modules of an example, which answer nothing by themselves."""
FILES = sorted(path for path in EXAMPLES.glob("*.py") if path.stem not in PARTS)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_asks_a_question_and_says_how_to_run_it_and_what_it_prints(path: Path) -> None:
    docstring = ast.get_docstring(ast.parse(path.read_text())) or ""
    lines = docstring.splitlines()
    assert lines[0].endswith("?")
    assert any(line.startswith(f"    python examples/{path.name}") for line in lines)
    assert any(line.startswith("Prints ") for line in lines)
    assert len(path.read_text().splitlines()) <= 100


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_in_the_readme_with_its_question(path: Path) -> None:
    question = (ast.get_docstring(ast.parse(path.read_text())) or "").splitlines()[0]
    assert f"| {question} | [{path.name}]({path.name}) |" in (EXAMPLES / "README.md").read_text()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_is_tested(path: Path) -> None:
    assert (Path(__file__).parent / f"test_{path.stem}.py").exists()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_an_example_uses_no_private_name(path: Path) -> None:
    tree = ast.parse(path.read_text())
    names = [node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)]
    names += [
        alias.name for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) for alias in node.names
    ]
    assert [name for name in names if name.startswith("_") and not name.startswith("__")] == []
