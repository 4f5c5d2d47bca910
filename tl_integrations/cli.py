"""The command line: a thin face over the rooms.

Exit codes of the checking commands: 0 all is well, 1 something differs, 2 the command could not be carried
out.
"""

import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any, TypeVar

import click
from rich.console import Console
from rich.progress import Progress, track

from tl_integrations import language as L
from tl_integrations.errors import TLError
from tl_integrations.launch.drift import find_drift, write_files
from tl_integrations.launch.export import config_files, importable_here, stored_entries
from tl_integrations.launch.lint import lint_folder
from tl_integrations.launch.sources import named_configs, read_config
from tl_integrations.launch.verify import verify_config

T = TypeVar("T")
MANY = 10
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
FOLDER = click.Path(file_okay=False, path_type=Path)
BUNDLE = click.Path(path_type=Path)
"""The storage says what stands at a path that holds no bundle."""
PATH = click.Path(exists=True, path_type=Path)


@contextmanager
def plain_errors() -> Iterator[None]:
    """What we raise on purpose becomes one message and exit code 2; anything else keeps its traceback."""
    try:
        yield
    except TLError as error:
        notes = "".join(f"\n{note}" for note in getattr(error, "__notes__", ()))
        click.echo(f"Error: {error}{notes}", err=True)
        sys.exit(2)


def with_progress(items: Sequence[T], doing: str = "Tracing") -> Iterator[T]:
    """The same items, behind a progress bar when there are many and somebody watches."""
    quiet = len(items) < MANY or not sys.stderr.isatty()
    return iter(track(items, doing, console=Console(stderr=True), transient=True, disable=quiet))


@click.group()
@click.version_option(package_name="tl_integrations")
def main() -> None:
    """Config from code and capture on chosen steps, for PyTorch, Lightning and Hydra."""


def room(name: str) -> Any:
    """A room that loads torch, which takes seconds that commands about configs need not pay."""
    return import_module(f"tl_integrations.{name}")


def read_comparable(path: Path, step: int | None) -> Any:
    """A bundle's records, of one step or all, or a checkpoint's tensors."""
    if not path.is_dir():
        return room("reporting").read_checkpoint(path)
    recording = room("storage").load(path)
    return recording if step is None else recording.at(step)


def show_result(result: Any, as_json: bool) -> None:
    """Print what has a table and a `to_dict`."""
    if as_json:
        click.echo(json.dumps(result.to_dict(), indent=2, allow_nan=False))
    else:
        Console().print(result)


@main.command(short_help="Two bundles or checkpoints, layer by layer.")
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
@click.option("--step", type=int, help="Step of FIRST; all steps that both have when not given.")
@click.option("--other-step", type=int, help="Step of SECOND; --step when not given.")
@click.option("--tensorboard", "board", type=FOLDER, help="Also write pictures of the comparison there.")
@click.option("--json", "as_json", is_flag=True, help="Print plain data for scripts.")
def compare(
    first: Path, second: Path, step: int | None, other_step: int | None, board: Path | None, as_json: bool
) -> None:
    """Compare two .tlspec bundles, or two checkpoints, layer by layer.

    Prints relative change, cosine and linear CKA. Give the same bundle twice with --step and --other-step to
    compare two steps of a run.
    """
    if first.is_dir() != second.is_dir():
        one, other = (first, second) if first.is_dir() else (second, first)
        raise click.UsageError(f"{one} is a bundle and {other} a checkpoint file. Give two of the same kind.")
    with plain_errors():
        found = room("reporting").compare(
            read_comparable(first, step),
            read_comparable(second, step if other_step is None else other_step),
            track=lambda pairs: with_progress(pairs, "Comparing"),
        )
        if board is not None:
            room("reporting").write_comparison(found, board)
        show_result(found, as_json)


@main.command(short_help="Write a bundle as TensorBoard events.")
@click.argument("bundle", type=BUNDLE)
@click.option("--out", type=FOLDER, help="Folder of the events; BUNDLE.tensorboard when not given.")
@click.option("--histograms", default=64, show_default=True, help="Bins per histogram; 0 writes none.")
def tensorboard(bundle: Path, out: Path | None, histograms: int) -> None:
    """Write what BUNDLE holds as TensorBoard events, for a run that was captured without a logger."""
    folder = out or bundle.with_name(f"{bundle.name}.tensorboard")
    with plain_errors():
        steps = room("reporting").write_events(
            room("storage").load(bundle),
            folder,
            histograms=histograms,
            track=lambda each: with_progress(each, "Writing"),
        )
        click.echo(f"{steps} captured steps written. Look at them with:\n\n    tensorboard --logdir {folder}")


@main.command(short_help="Run a captured step again and compare.")
@click.argument("bundle")
@click.option("--step", required=True, type=int, help="The captured step.")
@click.option("--batch", required=True, type=FILE, help="What the step was given, saved with torch.save.")
@click.option("--checkpoint", type=FILE, help="Weights from before that step.")
@click.option("--stage", default="train", show_default=True, help="Which stage of that step.")
@click.option("--allow", multiple=True, metavar="NAME", help="A target or pattern that may run; repeatable.")
@click.option("--tolerance", default=0.0, show_default=True, help="Largest difference that counts as none.")
def rerun(
    bundle: str,
    step: int,
    batch: Path,
    checkpoint: Path | None,
    stage: str,
    allow: tuple[str, ...],
    tolerance: float,
) -> None:
    """Run a captured step of BUNDLE again, and say which activations match and where the first difference is.

    The model comes from the bundle's config. Exits with 1 when something differs.
    """
    importable_here()
    with plain_errors():
        outcome = room("launch.rerun").rerun(
            bundle,
            step=step,
            batch=batch,
            checkpoint=checkpoint,
            stage=stage,
            allow=allow,
            tolerance=tolerance,
        )
        click.echo(str(outcome))
        sys.exit(0 if outcome.first_difference is None else 1)


@main.group(short_help="Configs from code, as YAML.")
def config() -> None:
    """Configs from code: write them as YAML, keep the files current, look at them."""


@config.command(short_help="Write the configs of a module as YAML.")
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
            click.echo(f"{len(files)} configs, not current: {len(drifts)}" if drifts else "all current")
            sys.exit(1 if drifts else 0)
        written = write_files(files, out, overwrite=overwrite)
        click.echo(f"{len(files)} configs, {len(written)} written: {', '.join(written) or 'all current'}")


@config.command(short_help="Find mistakes in a folder of YAML.")
@click.argument("folder", type=FOLDER)
def lint(folder: Path) -> None:
    """Find targets in FOLDER's YAML that do not import, may not run, or get arguments they do not take."""
    with plain_errors():
        problems = lint_folder(folder)
        for problem in problems:
            click.echo(str(problem))
        if not problems:
            click.echo("no problems")
        sys.exit(1 if problems else 0)


@config.command(short_help="Print a config.")
@click.argument("source")
def show(source: str) -> None:
    """Print the config of SOURCE: a YAML file, a .tlspec bundle, or 'module:group/name'."""
    with plain_errors():
        click.echo(L.to_yaml(read_config(source)), nl=False)


@config.command(short_help="Compare two configs key by key.")
@click.argument("before")
@click.argument("after")
def diff(before: str, after: str) -> None:
    """Compare two configs key by key; each is what `show` takes. Exits with 1 when they differ."""
    with plain_errors():
        difference = L.diff(read_config(before), read_config(after))
        click.echo(str(difference))
        sys.exit(1 if difference else 0)


@config.command(short_help="Build with plain Hydra and compare.")
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


@contextmanager
def byte_progress(doing: str) -> Iterator[Any]:
    """A function of bytes done and bytes in all that moves a bar, when somebody watches."""
    watched = sys.stderr.isatty()
    with Progress(console=Console(stderr=True), transient=True, disable=not watched) as bar:
        task = bar.add_task(doing, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


@main.command("show", short_help="What a bundle holds, and if it is healthy.")
@click.argument("bundle", type=BUNDLE)
@click.option("--live", is_flag=True, help="Read a bundle that is still being written.")
@click.option("--json", "as_json", is_flag=True, help="Print plain data for scripts.")
def show_bundle(bundle: Path, live: bool, as_json: bool) -> None:
    """List what BUNDLE holds: status, steps, layers, sizes, origin; say what looks wrong in its numbers."""
    with plain_errors():
        summary = room("storage.inspecting").summarize(bundle, live=live)
        recording = room("storage").load(bundle, live=live)
        report = room("reporting").report_of(recording, track=lambda steps: with_progress(steps, "Reading"))
    if as_json:
        click.echo(json.dumps(summary.to_dict() | {"health": report.to_dict()}, indent=2, allow_nan=False))
    else:
        Console().print(summary, report)


@main.command("recover", short_help="Read a damaged bundle, count what is lost.")
@click.argument("bundle", type=BUNDLE)
@click.option("--to", "target", type=FOLDER, help="Also write what was recovered to a new bundle there.")
def recover_bundle(bundle: Path, target: Path | None) -> None:
    """Read every committed record of BUNDLE, whatever happened to it, and say what is lost.

    BUNDLE itself is never changed. Exits with 1 when something is lost.
    """
    with plain_errors(), byte_progress("Checking") as progress:
        recording = room("storage").recover(bundle, progress=progress)
        if target is not None:
            room("storage").save(recording, target)
    found = recording.recovery
    click.echo(str(found))
    for reason in found.reasons:
        click.echo(f"  {reason}")
    if target is not None:
        click.echo(f"Written to {target}.")
    sys.exit(1 if found.lost else 0)


@main.command("verify", short_help="Check all checksums of a bundle.")
@click.argument("bundle", type=BUNDLE)
def verify_bundle(bundle: Path) -> None:
    """Check every byte of BUNDLE against every checksum. Exits with 1 when something does not fit."""
    with plain_errors(), byte_progress("Verifying") as progress:
        found = room("storage.verification").verify(bundle, progress=progress)
    for problem in found.problems:
        click.echo(problem)
    for name in found.strangers:
        click.echo(f"Not of the format, ignored: {name!r}")
    click.echo(f"{found.records} records, {found.nbytes} bytes: {'whole' if found.whole else 'damaged'}")
    sys.exit(0 if found.whole else 1)


@main.command("convert", short_help="Write a bundle in another format.")
@click.argument("bundle", type=BUNDLE)
@click.argument("target", type=FOLDER)
@click.option("--to", "format", type=click.Choice(["torchlens", "tlspec"]), required=True)
@click.option("--step", type=int, help="Only the records of this step.")
def convert_bundle(bundle: Path, target: Path, format: str, step: int | None) -> None:
    """Write BUNDLE, of either format, as another bundle TARGET."""
    with plain_errors():
        recording = room("storage").load(bundle)
        kept = recording if step is None else recording.at(step, stage=None)
        room("storage").save(kept, target, format=format)
    click.echo(f"{len(kept)} records written to {target}.")
