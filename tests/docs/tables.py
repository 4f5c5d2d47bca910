"""The tables "you write | you now write": both sides run, and what they give is compared.

`python -m tests.docs.tables PAGE` checks a page in a process of its own, for libraries that patch torch.

A row's cells are one code span each. Names come from the page's python blocks; `<!-- before: ... -->` is code
for the left side alone, and a table after `<!-- shown -->` has left sides that are not installed here and are
only parsed.
"""

import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from tests.docs.pages import Reader, blocks

HEADER = "| you write | you now write |"
SETUP = re.compile(r"<!-- before: (.*?) -->", re.S)
CELL = re.compile(r"`([^`]*)`")
PLAIN = (torch.Tensor, str, int, float, bool, list, tuple, dict, type(None))


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    before: str
    after: str
    line: int
    only_shown: bool
    """The left side is parsed and not run."""


def rows(page: Path) -> Iterator[Row]:
    inside = shown = False
    for number, line in enumerate(page.read_text().splitlines(), start=1):
        shown = shown or line == "<!-- shown -->"
        cells = CELL.findall(line.replace("\\|", "|")) if line.startswith("|") else []
        if inside and cells:
            assert len(cells) == 2, f"{page.name}:{number} has {len(cells)} pieces of code, not two"
            yield Row(before=cells[0], after=cells[1], line=number, only_shown=shown)
        inside = line == HEADER or (inside and line.startswith("|"))
        shown = shown and (inside or not line.strip() or line == "<!-- shown -->")


def check(page: Path, folder: Path) -> int:
    """Run every row of a page in a folder that is the working directory; gives how many there were."""
    reader = Reader(page, folder)
    for block in blocks(page):
        reader.take(block)
    found = list(rows(page))
    setup = "\n".join(SETUP.findall(page.read_text()))
    for row in found:
        result = value_of(row.after, dict(reader.module.__dict__))
        if row.only_shown:
            ast.parse(row.before)
            continue
        names = dict(reader.module.__dict__)
        exec(setup, names)
        expected = value_of(row.before, names)
        if isinstance(result, PLAIN) and isinstance(expected, PLAIN):
            assert same(result, expected), f"{page.name}:{row.line}: {expected!r} became {result!r}"
    return len(found)


def value_of(code: str, names: dict[str, Any]) -> Any:
    """What the last statement gives, if it is an expression."""
    tree = ast.parse(code)
    last = tree.body.pop() if isinstance(tree.body[-1], ast.Expr) else None
    exec(compile(tree, "table", "exec"), names)
    return eval(compile(ast.Expression(last.value), "table", "eval"), names) if last is not None else None


def same(a: Any, b: Any) -> bool:
    if isinstance(a, torch.Tensor) or isinstance(b, torch.Tensor):
        return torch.equal(a, b)
    return bool(a == b)


if __name__ == "__main__":
    print(check(Path(sys.argv[1]), Path.cwd()))
