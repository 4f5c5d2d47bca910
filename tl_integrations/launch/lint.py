"""Find what would fail when a folder of configs is built: without building anything."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tl_integrations.errors import ConfigError
from tl_integrations.language import linting, load_config

Key = tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that would fail."""

    path: str
    """File, below the linted folder."""
    key: str
    """Dotted key of the node in the file."""
    text: str
    """What is wrong, and how to mend it."""

    def __str__(self) -> str:
        return f"{self.path}: {self.key or '(top)'}: {self.text}"


def lint_folder(folder: Path) -> list[Problem]:
    """Check every `_target_` of every YAML file below `folder`.

    The modules that targets name are imported; nothing of them is called.

    Raises: ConfigError when there is no such folder, or no YAML in it.
    """
    if not folder.is_dir():
        raise ConfigError(f"{str(folder)!r} is not a folder. Give the folder that holds the YAML files.")
    # Hydra keeps copies of past runs in `.hydra`; they are not configs to choose from.
    paths = [path for path in sorted(folder.rglob("*.yaml")) if ".hydra" not in path.parts]
    if not paths:
        raise ConfigError(f"{str(folder)!r} holds no .yaml files.")
    return [problem for path in paths for problem in lint_file(path, path.relative_to(folder).as_posix())]


def lint_file(path: Path, name: str) -> Iterator[Problem]:
    """The problems of one file; `name` is how they call it."""
    try:
        tree = load_config(path, as_dict=True)
    except ConfigError as error:
        yield Problem(path=name, key="", text=str(error))
        return
    chosen = chosen_keys(tree.get("defaults", []))
    for key, node in nodes(tree):
        filled = {child[-1] for child in chosen if child[:-1] == key}
        for text in node_problems(node, filled):
            yield Problem(path=name, key=".".join(key), text=text)


def chosen_keys(defaults: Any) -> set[Key]:
    """Keys that a defaults list fills with another config: `{"enc/norm": "batch"}` fills `enc.norm`."""
    groups = [next(iter(item)) for item in defaults if isinstance(item, Mapping) and item]
    named = [str(group).split(" ")[-1] for group in groups]
    return {tuple(group.split("@")[-1].replace("/", ".").split(".")) for group in named}


def nodes(tree: Any, at: Key = ()) -> Iterator[tuple[Key, Mapping[str, Any]]]:
    """Every mapping with a `_target_`, with its key."""
    if isinstance(tree, Mapping):
        if "_target_" in tree:
            yield at, tree
        for key, value in tree.items():
            yield from nodes(value, (*at, str(key)))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from nodes(value, (*at, str(index)))


def node_problems(node: Mapping[str, Any], filled: set[str]) -> list[str]:
    """What would fail in one node; `filled` are the keys that other configs put into it."""
    target, positional = node["_target_"], node.get("_args_", [])
    if not isinstance(target, str) or "${" in target or target == "???" or not isinstance(positional, list):
        return []
    keys = filled | {key for key in node if key != "defaults"}
    partial = bool(node.get("_partial_"))
    return linting.problems(target, sorted(keys), positional=len(positional), partial=partial)
