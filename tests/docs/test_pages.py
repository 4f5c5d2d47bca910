"""Every block of code in the documentation does what the page says."""

from pathlib import Path

import pytest

from tests.docs.pages import DOCS, ROOT, Reader, blocks

pytestmark = pytest.mark.filterwarnings("ignore:Not finite")
RUNS = ("python", "console", "yaml")
PAGES = [page for page in sorted(DOCS.rglob("*.md")) if any(block.kind in RUNS for block in blocks(page))]


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(DOCS)) for page in PAGES])
def test_a_page_can_be_followed(page: Path, desk: Path) -> None:
    Reader(page, desk).follow()


@pytest.mark.parametrize("name", ["README.md", "CONTRIBUTING.md"])
def test_the_python_of_a_page_of_the_repository_runs(name: str, desk: Path) -> None:
    page = ROOT / name
    reader = Reader(page, desk)
    for block in blocks(page):
        # Consoles there show commands of the clone and of a reader's own app.
        if block.kind == "python":
            reader.take(block)
