"""A page of the documentation, run block by block as its reader would.

    python             runs, all blocks of a page in one module; a comment behind `print(...)` is its output
    py, sh, text, ...  are only shown
    console            lines `$ tl-integrations ...` and `$ python ...` run; lines between them are output
    any, title="a/b"   is written to that file first
    any, title="printed"   is what the block before it printed
    yaml               parses; a file of it with `defaults` composes in Hydra

`...` in an output stands for anything, and one ` / ` in a comment for the end of a line.
"""

import ast
import doctest
import importlib
import io
import logging
import re
import runpy
import shlex
import sys
import tokenize
import types
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

import yaml
from click.testing import CliRunner
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.singleton import Singleton

from tl_integrations.cli import main

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
FENCE = re.compile(
    r"^(?P<indent> *)```(?P<kind>\w+)(?P<more>[^\n]*)\n(?P<code>.*?)^(?P=indent)```$", re.M | re.S
)
TITLE = re.compile(r'title="([^"]*)"')
MODULE = "my_project"
"""What a page's own definitions are imported from."""
EXIT = re.compile(r"exits with (\d)")
MATCH = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """One fenced block."""

    kind: str
    title: str
    code: str
    line: int
    """Lines of the page before its first."""


def blocks(page: Path) -> Iterator[Block]:
    text = page.read_text()
    for found in FENCE.finditer(text):
        title = TITLE.search(found["more"])
        yield Block(
            kind=found["kind"],
            title=title[1] if title else "",
            code=dedent(found["code"]),
            line=text.count("\n", 0, found.start("code")),
        )


class Reader:
    """Follows one page in a folder that is the working directory.

    Args:
        page: A Markdown file.
        folder: Where its files go; must be on `sys.path` already.
    """

    def __init__(self, page: Path, folder: Path) -> None:
        self.page, self.folder = page, folder
        self.module = types.ModuleType(MODULE)
        self.module.__file__ = str(page)
        sys.modules[self.module.__name__] = self.module
        self.printed = ""
        self.written: list[Path] = []

    def follow(self) -> None:
        for block in blocks(self.page):
            self.take(block)
        for path in self.written:
            if path.suffix == ".yaml" and "defaults" in yaml.safe_load(path.read_text()):
                self.compose(path)

    def compose(self, path: Path) -> None:
        """A primary config has to come together from all that it names."""
        GlobalHydra.instance().clear()
        with initialize_config_dir(str(path.parent), version_base=None):
            compose(path.stem)

    def take(self, block: Block) -> None:
        if block.kind == "yaml":
            yaml.safe_load(block.code)
        if block.title == "printed":
            self.expect(block.code, self.printed, block.line)
        elif block.title:
            path = self.folder / block.title
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code)
            self.written.append(path)
            importlib.invalidate_caches()
        elif block.kind == "python":
            self.printed = self.run_python(block)
        elif block.kind == "console":
            self.run_console(block)

    def run_python(self, block: Block) -> str:
        tree = ast.parse("\n" * block.line + block.code)
        comments = trailing_comments(block)
        printed = ""
        for statement in tree.body:
            out = io.StringIO()
            with redirect_stdout(out):
                exec(compile(ast.Module([statement], []), str(self.page), "exec"), self.module.__dict__)
            if is_print(statement) and statement.end_lineno in comments:
                shown = " / ".join(out.getvalue().rstrip().splitlines())
                self.expect(comments[statement.end_lineno], shown, statement.lineno)
            printed += out.getvalue()
        return printed

    def run_console(self, block: Block) -> None:
        for part in re.split(r"^\$ ", block.code, flags=re.M)[1:]:
            command, _, output = part.partition("\n")
            exits = EXIT.search(command)
            self.printed, code = self.call(shlex.split(command, comments=True))
            assert code == int(exits[1] if exits else 0), f"{self.page.name}: {command}\n{self.printed}"
            if output.strip():
                self.expect(output, self.printed, block.line)

    def call(self, words: list[str]) -> tuple[str, int]:
        """What a command prints, and its exit code."""
        if words[0] == "tl-integrations":
            result = CliRunner().invoke(main, words[1:])
            if result.exception is not None and not isinstance(result.exception, SystemExit):
                raise result.exception
            return result.output, result.exit_code
        assert words[0] == "python", f"{self.page.name}: {words[0]} is not run; show it in a block of kind sh"
        return run_script(words[1:])

    def expect(self, wanted: str, got: str, line: int) -> None:
        wanted, got = (f"{text.strip()}\n" for text in (wanted, got))
        assert doctest.OutputChecker().check_output(wanted, got, MATCH), (
            f"{self.page.name}:{line} says\n{wanted}\nand it is\n{got}"
        )


def run_script(words: list[str]) -> tuple[str, int]:
    """Run a script of Hydra's in this process, which has loaded torch already."""
    root, state = logging.getLogger(), Singleton.get_state()
    handlers, level = list(root.handlers), root.level
    out, code = io.StringIO(), 0
    argv, sys.argv = sys.argv, words
    try:
        # Standard error stays pytest's: Hydra ends all handlers of logging, and absl's then closes its stream
        # unless that is standard error.
        with redirect_stdout(out):
            runpy.run_path(words[0], run_name="__main__")
    except SystemExit as end:
        code = int(end.code or 0)
    finally:
        sys.argv = argv
        for handler in set(root.handlers) - set(handlers):
            handler.close()
        root.handlers[:], root.level = handlers, level
        Singleton.set_state(state)
    return out.getvalue(), code


def trailing_comments(block: Block) -> dict[int, str]:
    """Comments by their line in the page."""
    tokens = tokenize.generate_tokens(io.StringIO(block.code).readline)
    return {
        block.line + token.start[0]: token.string.lstrip("# ")
        for token in tokens
        if token.type == tokenize.COMMENT
    }


def is_print(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(ast.Call(ast.Name("print"))):
            return True
    return False
