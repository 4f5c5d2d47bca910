"""The public names are exactly those that architecture and docs promise, and each resolves."""

import ast
from pathlib import Path

import pytest

import tl_integrations

PROMISED = set(
    """
    Layer Op Recorder Recording StepMonitor Trace TraceCallback compare contains errors followed_by func
    in_module label language load load_runs module options output preceded_by record recover regex save
    schedule select to_disk trace where
    """.split()
)


def listed() -> set[str]:
    tree = ast.parse(Path(tl_integrations.__file__).with_suffix(".pyi").read_text())
    return {
        alias.asname or alias.name
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_every_listed_name_is_promised() -> None:
    assert listed() <= PROMISED


@pytest.mark.parametrize("name", sorted(listed()))
def test_a_listed_name_resolves(name: str) -> None:
    assert getattr(tl_integrations, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError):
        getattr(tl_integrations, "no_such_name")  # noqa: B009  (a plain attribute is a useless expression)
