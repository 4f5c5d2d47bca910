"""The command line: a thin face over the rooms.

Exit codes of the checking commands: 0 all is well, 1 something differs, 2 the command could not be carried
out.
"""

import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import click
from rich.console import Console
from rich.progress import track

from tl_integrations import language as L
from tl_integrations.errors import TLError
from tl_integrations.language import registry
from tl_integrations.launch.drift import find_drift, write_files
from tl_integrations.launch.export import config_files, stored_entries
from tl_integrations.launch.lint import lint_folder
from tl_integrations.launch.sources import named_configs, read_config
from tl_integrations.launch.verify import verify_config

MANY = 10
FOLDER = click.Path(file_okay=False, path_type=Path)


@contextmanager
def plain_errors() -> Iterator[None]:
    """What we raise on purpose becomes one message and exit code 2; anything else keeps its traceback."""
    try:
        yield
    except TLError as error:
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        click.echo(f"Error: {error}{notes}", err=True)
        sys.exit(2)


def with_progress(entries: Sequence[registry.Entry]) -> Iterator[registry.Entry]:
    """The same entries, behind a progress bar when there are many and somebody watches."""
    quiet = len(entries) < MANY or not sys.stderr.isatty()
    return iter(track(entries, "Tracing", console=Console(stderr=True), transient=True, disable=quiet))


@click.group()
@click.version_option(package_name="tl_integrations")
def main() -> None:
    """Config from code and capture on chosen steps, for PyTorch, Lightning and Hydra."""


@main.group()
def config() -> None:
    """Configs from code: write them as YAML, keep the files current, look at them."""


@config.command()
@click.argument("module")
@click.option("--out", required=True, type=FOLDER, help="Folder of the YAML files.")
@click.option("--only", multiple=True, metavar="GLOB", help="Only options such as 'model/*'; repeatable.")
@click.option("--check", is_flag=True, help="Write nothing; exit with 1 and a report if something differs.")
@click.option("--overwrite", is_flag=True, help="Also replace files that were edited, or are not ours.")
def export(module: str, out: Path, only: tuple[str, ...], check: bool, overwrite: bool) -> None:
    """Write the configs that MODULE gives to L.store as YAML files which plain Hydra reads."""
    with plain_errors():
        files = list(config_files(with_progress(stored_entries(module, only))))
        if check:
            drifts = find_drift(files, out, "" if only else module)
            for drift in drifts:
                click.echo(f"{drift}\n{drift.text_diff}{drift.key_diff}")
            click.echo(f"{len(files)} configs, {len(drifts)} files differ" if drifts else "all current")
            sys.exit(1 if drifts else 0)
        written = write_files(files, out, overwrite=overwrite)
        click.echo(f"{len(files)} configs, {len(written)} written: {', '.join(written) or 'all current'}")


@config.command()
@click.argument("folder", type=FOLDER)
def lint(folder: Path) -> None:
    """Find targets in FOLDER's YAML that do not import, may not run, or get arguments they do not take."""
    with plain_errors():
        problems = lint_folder(folder)
        for problem in problems:
            click.echo(str(problem))
        sys.exit(1 if problems else 0)


@config.command()
@click.argument("source")
def show(source: str) -> None:
    """Print the config of SOURCE: a YAML file, a .tlspec bundle, or 'module:group/name'."""
    with plain_errors():
        click.echo(L.to_yaml(read_config(source)), nl=False)


@config.command()
@click.argument("before")
@click.argument("after")
def diff(before: str, after: str) -> None:
    """Compare two configs key by key; each is what `show` takes. Exits with 1 when they differ."""
    with plain_errors():
        difference = L.diff(read_config(before), read_config(after))
        click.echo(str(difference))
        sys.exit(1 if difference else 0)


@config.command()
@click.argument("source")
@click.option("--allow", multiple=True, metavar="NAME", help="A target or pattern that may run; repeatable.")
@click.option("--meta", is_flag=True, help="Build on torch's meta device: no memory, no values.")
def verify(source: str, allow: tuple[str, ...], meta: bool) -> None:
    """Build SOURCE with plain Hydra and compare what was built with the config.

    SOURCE is a module, for all that it stores, or what `show` takes.
    """
    with plain_errors():
        verdicts = [verify_config(*pair, allow=allow, meta=meta) for pair in named_configs(source).items()]
        for verdict in verdicts:
            click.echo(str(verdict))
        sys.exit(0 if all(verdict.ok for verdict in verdicts) else 1)
