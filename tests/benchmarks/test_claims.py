"""Every figure that README and the documentation claim points to the table it comes from."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TABLES = (ROOT / "tests/benchmarks/RESULTS.md", ROOT / "tests/faults/RESULTS.md")
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))]

FIGURE = re.compile(
    r"(?<![\w.])\d[\d,.]*\s?"
    r"(?:(?:x|[uµm]s|ns|GB|MB|kB|MiB|GiB|percent|seconds?|minutes?|s)(?!\w)|%"
    r"|[ -]?(?:times|fold)\s(?:as|less|more|faster|slower|cheaper|dearer|smaller|larger)\b)"
)
"""A time, a size, a share or a ratio with its unit: `1.3x`, `0.3 us`, `2 s`, `14 times faster`."""
LINK = re.compile(r"\]\(([^)#\s]*)(#[^)\s]*)?\)")
CODE = re.compile(r"^(```|~~~).*?^\1[^\n]*$", re.MULTILINE | re.DOTALL)
NO_CLAIM = "<!-- no measurement -->"
"""Stands in a block whose figures are examples, settings or promises of another's documentation."""


def blocks(text: str) -> Iterator[str]:
    """Paragraphs, tables and list items, without code."""
    prose = re.sub(r"`[^`\n]*`", "`code`", CODE.sub("", text))
    for block in re.split(r"\n\s*\n|\n(?=\s*(?:[-*+]|\d+\.) )", prose):
        if block.strip() and not block.lstrip().startswith("    "):
            yield block


def unsupported(text: str, page: Path) -> list[str]:
    """Figures in blocks that hold no link to a table of results."""
    found = []
    for block in blocks(text):
        links = [(page.parent / target).resolve() for target, _ in LINK.findall(block) if "://" not in target]
        if NO_CLAIM not in block and not any(link in TABLES for link in links):
            visible = re.sub(r"\]\([^)]*\)", "]", block)
            beginning = " ".join(block.split())[:120]
            found += [f"{match.group()!r} in: {beginning}" for match in FIGURE.finditer(visible)]
    return found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_figure_points_to_a_table_of_results(page: Path) -> None:
    missing = unsupported(page.read_text(encoding="utf-8"), page)
    assert not missing, "Link tests/benchmarks/RESULTS.md#section beside:\n" + "\n".join(missing)


def anchors(path: Path) -> set[str]:
    """The headings of a file as GitHub names them."""
    headings = re.findall(r"^#+ (.+)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_link_to_results_names_a_heading_that_exists(page: Path) -> None:
    for target, anchor in LINK.findall(page.read_text(encoding="utf-8")):
        path = (page.parent / target).resolve()
        if path in TABLES and anchor:
            assert anchor in anchors(path), f"{page.name}: {target}{anchor}"


CLAIMS = (
    "costs 1.3x",
    "takes 0.3 us",
    "in 2 s",
    "is 14 times faster",
    "about 2 to 4 % of a step",
    "| a | 12.5 ms |",
    "25 MB of it",
    "saves 30 percent",
    "under 10 minutes",
)
OTHER_NUMBERS = (
    "Python 3.11 or newer",
    "steps 0, 10 and 20",
    "`sleep 2 s`",
    "```\ntook 3 ms\n```",
    "64 bins, 200 layers",
    "version 0.17.2",
    "2x2 pooling, seen 3 times",
    "layers.1s of an fp16x model",
)


@pytest.mark.parametrize("claim", CLAIMS)
def test_a_figure_without_a_link_is_found(claim: str) -> None:
    assert unsupported(f"Text that {claim} here.\n", ROOT / "README.md")
    linked = f"Text that {claim} here, [measured](tests/benchmarks/RESULTS.md#capture).\n"
    assert not unsupported(linked, ROOT / "README.md")


@pytest.mark.parametrize("text", OTHER_NUMBERS)
def test_what_is_no_measurement_needs_no_link(text: str) -> None:
    assert not unsupported(text + "\n", ROOT / "README.md")


def test_a_link_in_another_paragraph_does_not_count() -> None:
    link = "[fast](tests/benchmarks/RESULTS.md)"
    text = f"It costs 1.3x.\n\nSee {link}.\n\n- It is {link}.\n- 2x\n"
    assert len(unsupported(text, ROOT / "README.md")) == 2
