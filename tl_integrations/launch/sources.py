"""The places a config can come from, as one writes them on a command line."""

from pathlib import Path
from typing import Any

import tl_integrations as tl
from tl_integrations import language as L
from tl_integrations.errors import ConfigError, near_names
from tl_integrations.launch.export import stored_entries
from tl_integrations.launch.groups import option_path


def named_configs(source: str) -> dict[str, dict[str, Any]]:
    """What `source` stands for, by name: all that a module stores, else the one config it names."""
    if ":" in source or Path(source).suffix in (".tlspec", ".yaml"):
        return {source: read_config(source)}
    return {option_path(entry): entry.make() for entry in stored_entries(source)}


def read_config(source: str) -> dict[str, Any]:
    """The plain config that `source` names; nothing in it is built.

    Args:
        source: A YAML file, a `.tlspec` bundle, or `module:group/name` for a stored config.
    Raises: ConfigError when there is no such thing, or it holds no config.
    """
    module, colon, name = source.partition(":")
    if Path(source).suffix == ".tlspec":
        return bundle_config(source)
    if Path(source).is_file():
        plain: dict[str, Any] = L.load_config(source, as_dict=True)
        return plain
    if colon and all(part.isidentifier() for part in module.split(".")):
        return stored_config(module, name)
    raise ConfigError(
        f"{source!r} is no config: it is neither a YAML file nor a .tlspec bundle here, nor of the form "
        "'module:group/name', such as 'my_app.configs:model/resnet'."
    )


def stored_config(module: str, name: str) -> dict[str, Any]:
    """The stored config `name` (`group/name`) of `module`, whole and with its defaults."""
    entries = {option_path(entry): entry for entry in stored_entries(module)}
    if name not in entries:
        raise ConfigError(
            f"{module!r} stores no {name!r}. {near_names(name, entries)}It stores: {sorted(entries)}."
        )
    return entries[name].make()


def bundle_config(path: str) -> dict[str, Any]:
    """The config that a bundle carries. Raises ConfigError when it carries none; BundleError as `tl.load`."""
    config = tl.load(path).config
    if config is None:
        raise ConfigError(f"{path!r} carries no config: the run that wrote it had none to give.")
    return dict(config)
