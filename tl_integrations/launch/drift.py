"""How exported YAML on disk differs from what the code gives now: stale, edited, orphaned, missing or
foreign.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tl_integrations.errors import ConfigError
from tl_integrations.language import diff
from tl_integrations.language.files import write_whole
from tl_integrations.language.reading import parse_config
from tl_integrations.launch.export import (
    HEADER,
    ConfigFile,
    config_files,
    content_sum,
    stored_entries,
    text_diff,
)

Kind = Literal["missing", "stale", "hand-edited", "orphan", "foreign"]
MEANING: dict[Kind, str] = {
    "missing": "not exported yet (from {source})",
    "stale": "{source} gives something else now",
    "hand-edited": "changed by hand since it was exported from {source}",
    "orphan": "its builder {source} is not stored any more",
    "foreign": "not written by an export, and {source} would be written there",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Drift:
    """One file that is not as the code wants it."""

    path: str
    """Below the folder, with slashes."""
    kind: Kind
    source: str
    """`module:qualname` of the builder."""
    before: str = ""
    """The file's text; empty when there is none."""
    after: str = ""
    """The text that the code gives; empty when it gives none."""

    @property
    def text_diff(self) -> str:
        """Unified, from the file to the code; empty where one of them is not there."""
        return "".join(text_diff(self.path, self.before, self.after)) if self.before and self.after else ""

    @property
    def key_diff(self) -> str:
        """The same key by key, one line per key; empty where one of them is not there."""
        if not (self.before and self.after):
            return ""
        try:
            changes = diff(*(parse_config(text.encode()) for text in (self.before, self.after)))
        except ConfigError as error:
            return f"{error}\n"  # the file on disk does not even parse
        return f"{changes}\n"

    def __str__(self) -> str:
        return f"{self.kind}: {self.path}: {MEANING[self.kind].format(source=self.source)}"


def find_drift(files: Iterable[ConfigFile], folder: Path, module: str = "") -> list[Drift]:
    """How the folder differs from what the code gives.

    Args:
        files: What should be there.
        folder: Where the exported files lie.
        module: Look for orphans of this module and those below it; empty to look for none.
    """
    wanted = {file.path: file for file in files}
    found = [
        drift for file in wanted.values() if (drift := compare_file(file, folder / file.path)) is not None
    ]
    return found + (list(orphans(folder, module, set(wanted))) if module else [])


def compare_file(file: ConfigFile, path: Path) -> Drift | None:
    """What is wrong with one file, or None."""
    if not path.exists():
        return Drift(path=file.path, kind="missing", source=file.source, after=file.text)
    text = path.read_text(encoding="utf-8")
    if text == file.text:
        return None
    kind: Kind = "stale"
    header = HEADER.match(text)
    if header is None:
        kind = "foreign"
    elif header["sum"] != content_sum(header["package"] or "", header["body"]):
        kind = "hand-edited"
    return Drift(path=file.path, kind=kind, source=file.source, before=text, after=file.text)


def orphans(folder: Path, module: str, wanted: set[str]) -> Iterator[Drift]:
    """Files that were exported from `module` and that no stored config stands for."""
    for path in sorted(folder.rglob("*.yaml")):
        name = path.relative_to(folder).as_posix()
        header = HEADER.match(path.read_text(encoding="utf-8")) if name not in wanted else None
        if header is not None and f"{header['source'].split(':')[0]}.".startswith(f"{module}."):
            yield Drift(path=name, kind="orphan", source=header["source"], before=header["body"])


def write_files(files: Iterable[ConfigFile], folder: Path, *, overwrite: bool = False) -> list[str]:
    """Bring the folder up to date; returns the paths that were written.

    Raises: ConfigError, before anything is written, when a file was edited by hand or is not ours.
    """
    files = list(files)
    drifts = find_drift(files, folder)
    lost = [str(drift) for drift in drifts if drift.kind in ("hand-edited", "foreign")]
    if lost and not overwrite:
        raise ConfigError(
            "\n".join(lost) + "\nMove the edits into the code (or the file away), or export with --overwrite."
        )
    changed = {drift.path for drift in drifts}
    for file in files:
        if file.path in changed:
            write_whole(folder / file.path, file.text)
    return sorted(changed)


def assert_configs_current(module: str, folder: str | Path) -> None:
    """For a test suite: fail when the YAML in `folder` is not what the code in `module` gives.

    Args:
        module: Import path of the module that stores the builders.
        folder: Where `tl-integrations config export` wrote them.
    Raises: AssertionError that lists every stale, hand-edited, missing or orphaned file with its difference.
    """
    drifts = find_drift(config_files(stored_entries(module)), Path(folder), module)
    report = "\n".join(f"{drift}\n{drift.text_diff}" for drift in drifts)
    assert not drifts, f"{report}\nRun: tl-integrations config export {module} --out {folder}"
