"""The site builds without a warning, asks no foreign host for anything, and leaves out no public name."""

import os
import re
import shutil
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import tl_integrations
from tests.docs.pages import DOCS, ROOT

FETCHED = re.compile(
    r'<(?:script|link|img|iframe|source)\b[^>]*?\b(?:src|href)="?((?:https?:)?//[^"\s>]+)', re.I
)
FETCHED_BY_CSS = re.compile(r"(?:@import\s+|url\()[\"']?((?:https?:)?//[^\"')\s]+)", re.I)
LISTED = re.compile(r"^::: tl_integrations\.(\S+)$(?:\n    options:\n      heading: (\w+)$)?", re.M)
MODULES = ("language", "schedule", "storage", "reporting", "callbacks", "launch")


def test_the_site_builds_strictly_and_fetches_nothing_from_elsewhere(tmp_path: Path) -> None:
    # As in a clean clone.
    shutil.rmtree(ROOT / "build" / "package", ignore_errors=True)
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    pages, sheets = list(tmp_path.rglob("*.html")), list(tmp_path.rglob("*.css"))
    assert len(pages) > 30 and sheets
    foreign = {url for page in pages for url in FETCHED.findall(page.read_text())}
    foreign |= {url for sheet in sheets for url in FETCHED_BY_CSS.findall(sheet.read_text())}
    assert not foreign
    assert "TraceCallback" in (tmp_path / "search" / "search_index.json").read_text()


def documented() -> set[str]:
    """Names with a section in the API reference, as a user would import them."""
    found = (match for page in (DOCS / "api").glob("*.md") for match in LISTED.findall(page.read_text()))
    return {f"{path.split('.')[0]}.{heading}" if heading else path for path, heading in found}


def public() -> list[str]:
    stub = Path(tl_integrations.__file__).with_suffix(".pyi").read_text()
    root = re.findall(r" as (\w+)$", stub, re.M)
    rooms = [
        f"{room}.{name}" for room in MODULES for name in import_module(f"tl_integrations.{room}").__all__
    ]
    here = {getattr(tl_integrations, name) for name in root}
    rooms = [name for name in rooms if _object(name) not in here]
    return [name for name in root if name not in ("errors", "language", "options", "schedule")] + rooms


def _object(name: str) -> object:
    room, _, attribute = name.partition(".")
    found = getattr(import_module(f"tl_integrations.{room}"), attribute)
    return found if found.__hash__ is not None else name


@pytest.mark.parametrize("name", public())
def test_a_public_name_is_in_the_api_reference(name: str) -> None:
    assert name in documented() or name.rpartition(".")[2].endswith("Error")
