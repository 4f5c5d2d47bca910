"""YAML from code: the files that stored configs should be.

A file starts with three comment lines: who wrote it and from which builder, what to do instead of editing it,
and the sha256 of what follows. drift.py reads them back to tell an edited file from one left behind.
"""

import hashlib
import importlib
import os
import re
import sys
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from difflib import unified_diff
from fnmatch import fnmatch

from tl_integrations.errors import ConfigError, near_names
from tl_integrations.language import registry, to_yaml
from tl_integrations.launch.groups import entry_options, option_path, place, refuse_other
from tl_integrations.launch.splitting import GroupOption

HEADER = re.compile(
    r"\A(?P<package># @package [^\n]*\n)?"
    r"# Written by `tl-integrations config export` from (?P<source>\S+)\n"
    r"# Change the code and export again: edits here are lost\.\n"
    r"# sha256: (?P<sum>[0-9a-f]{64})\n"
    r"(?P<body>.*)\Z",
    re.DOTALL,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigFile:
    """A YAML file as the code wants it."""

    path: str
    """Below the output folder, with slashes: `model/resnet.yaml`."""
    source: str
    """`module:builder`: the module that stored it, and what it stored."""
    text: str
    """The whole file."""


def stored_entries(module: str, only: Iterable[str] = ()) -> list[registry.Entry]:
    """Import `module` and list what it, or a module below it, gave to `L.store`.

    Args:
        module: Dotted name; the working directory is importable, as it is for `python -m`.
        only: Globs over `group/name`; empty for all.
    Raises: ConfigError when the module cannot be found or stores nothing.
    """
    import_module(module)
    entries = registry.entries()
    own = [entry for entry in entries if f"{entry.module}.".startswith(f"{module}.")]
    if not own:
        others = sorted({entry.module for entry in entries})
        known = ", ".join(map(repr, others))
        fix = f"Modules that do: {known}." if others else "Name the module that calls L.store."
        raise ConfigError(f"{module!r} stores no configs with L.store. {near_names(module, others)}{fix}")
    globs = list(only)
    chosen = [entry for entry in own if not globs or any(fnmatch(option_path(entry), glob) for glob in globs)]
    if not chosen:
        raise ConfigError(f"--only {globs} matches none of {[option_path(entry) for entry in own]}.")
    return chosen


def importable_here() -> None:
    """Let modules of the working directory be imported, as `python -m` does."""
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def import_module(name: str) -> None:
    """Import a user's module; the working directory counts.

    Raises: ConfigError when there is none of that name; what the module itself raises passes.
    """
    importable_here()
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not f"{name}.".startswith(f"{error.name}."):
            raise
        raise ConfigError(
            f"There is no module {name!r} here. Run from the folder that holds it, or install its package."
        ) from error


def config_files(entries: Iterable[registry.Entry]) -> Iterator[ConfigFile]:
    """The files of stored configs; each config is traced twice, and must come out the same.

    Raises:
        ConfigError: when it does not, or when two of them want different texts in one file; what a trace
            raises passes.
    """
    seen: dict[str, tuple[GroupOption, registry.Entry]] = {}
    for entry in entries:
        first, second = entry_files(entry), entry_files(entry)
        if [file.text for file in first] != [file.text for file in second]:
            raise ConfigError(
                f"{option_path(entry)!r} ({place(entry)}) gives a different config each time:\n"
                f"{''.join(text_diff('', second[0].text, first[0].text))}Take the varying value out of it."
            )
        for option, file in zip(entry_options(entry), first):
            refuse_other(option, entry, seen.get(file.path))
            if file.path not in seen:
                seen[file.path] = (option, entry)
                yield file


def entry_files(entry: registry.Entry) -> list[ConfigFile]:
    files, source = [], f"{entry.module}:{entry.qualname.removeprefix(f'{entry.module}.')}"
    for option in entry_options(entry):
        # Hydra reads `# @package` only from the first lines of a file.
        package = f"# @package {option.package}\n" if option.package else ""
        body = to_yaml(option.body)
        text = (
            f"{package}# Written by `tl-integrations config export` from {source}\n"
            "# Change the code and export again: edits here are lost.\n"
            f"# sha256: {content_sum(package, body)}\n{body}"
        )
        files.append(ConfigFile(path=f"{option.path}.yaml", source=source, text=text))
    return files


def content_sum(package: str, body: str) -> str:
    """The sum that tells an edited file from an untouched one."""
    return hashlib.sha256((package + body).encode()).hexdigest()


def text_diff(name: str, before: str, after: str) -> Iterator[str]:
    return unified_diff(
        before.splitlines(keepends=True), after.splitlines(keepends=True), f"{name} (file)", f"{name} (code)"
    )
