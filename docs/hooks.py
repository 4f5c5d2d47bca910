"""What the site takes from outside its folder: the package as a user gets it, the command line's help, the
measured figures and the pictures.

Pages link to those files where they lie in the repository, so that the links hold there too.
"""

import re
import shutil
from inspect import cleandoc
from pathlib import Path
from typing import Any

import click
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from tl_integrations.cli import main

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "build" / "package" / "tl_integrations"
MAPPED = {"callbacks": ROOT / "callbacks", "configs": ROOT / "configs"}
"""Folders that packaging puts into the package."""
OUTSIDE = {
    "tests/benchmarks/": "measured/benchmarks/",
    "tests/faults/": "measured/faults/",
    "examples/": "examples/",
}
"""Folders of the repository that pages link into, and where the site has them."""
SHOWN = ("RESULTS.md", "*.png", "*.svg")
LINK = re.compile(rf"\]\(((?:\.\./)*)\.\./({'|'.join(OUTSIDE)})")
COMMANDS = "<!-- every command -->"


def on_startup(command: str, dirty: bool) -> None:
    """Put the package together as it is installed, so that its docstrings are found under its own names.

    Before any plugin looks: mkdocstrings takes no notice of a folder that is not there yet.
    """
    shutil.rmtree(PACKAGE, ignore_errors=True)
    PACKAGE.mkdir(parents=True)
    own = {path.name: path for path in (ROOT / "tl_integrations").iterdir()}
    for name, source in (own | MAPPED).items():
        if name != "__pycache__":
            (PACKAGE / name).symlink_to(source)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the figures and pictures."""
    for folder, place in OUTSIDE.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if any(map(path.match, SHOWN)):
                name = f"{place}{path.relative_to(ROOT / folder).as_posix()}"
                files.append(File.generated(config, name, abs_src_path=str(path)))
    return files


def on_page_markdown(markdown: str, **rest: Any) -> str:
    """Lead links out of the folder to the site's copies; write the command line's help where it is wanted."""
    markdown = LINK.sub(lambda found: f"]({found[1]}{OUTSIDE[found[2]]}", markdown)
    return markdown.replace(COMMANDS, "\n".join(sections(main, "tl-integrations")))


def sections(command: click.Command, name: str) -> list[str]:
    """A section for each command below one."""
    if not isinstance(command, click.Group):
        return [f"## {name.removeprefix('tl-integrations ')}", "", section(command, name), ""]
    return [line for child, below in command.commands.items() for line in sections(below, f"{name} {child}")]


def section(command: click.Command, name: str) -> str:
    """How a command is called, what it does, and its options as a table."""
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    text = re.sub(r"(?<!\n)\n(?!\n)", " ", cleandoc(command.help or ""))
    options = [option for option in command.params if isinstance(option, click.Option)]
    rows = [row for option in options if (row := option.get_help_record(context)) is not None]
    table = ["", "| option | |", "|---|---|", *(f"| `{option}` | {words} |" for option, words in rows)]
    return "\n".join([f"```text\n{name} {usage}\n```", "", text, *(table if rows else [])])
