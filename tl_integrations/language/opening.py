"""Any config a user may hand over -> plain data, the root it lies in, and its path there."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from tl_integrations.errors import BuildError
from tl_integrations.language.keys import Path
from tl_integrations.language.nodes import Node, Site
from tl_integrations.language.paths import load
from tl_integrations.language.scanning import is_config_object


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A config as plain data."""

    root: Any
    """Dicts, lists, scalars and live objects, interpolations as text."""
    path: Path
    """Where the given config lies in the root."""
    evaluate: Callable[[Path], Any]
    """OmegaConf's own value of an interpolation, for the forms that are left to it."""
    sites: dict[Path, Site] = field(default_factory=dict)
    """Where nodes were recorded, as far as known."""


def open_config(cfg: Any) -> Opened:
    """Open a DictConfig, ListConfig, dict or list. Raises BuildError for anything else."""
    if is_config_object(cfg):
        return _open_omegaconf(cfg)
    if isinstance(cfg, Node):
        raise BuildError(f"{cfg!r} is still being traced. Build the config that L.trace returns.")
    if isinstance(cfg, dict | list):
        root = _plain(cfg, set())
        return Opened(
            root=root,
            path=(),
            evaluate=lambda path: _evaluate(load("omegaconf.OmegaConf.create")(root), path),
        )
    raise BuildError(f"A config is a DictConfig, a dict or a list, not {type(cfg).__name__}.")


def root_and_path(cfg: Any) -> tuple[Any, Path]:
    """The outermost config that an object of OmegaConf's lies in, and its place there."""
    path: list[Any] = []
    while cfg._get_parent() is not None:
        path.insert(0, cfg._key())
        cfg = cfg._get_parent()
    return cfg, tuple(path)


def _open_omegaconf(cfg: Any) -> Opened:
    root, path = root_and_path(cfg)
    return Opened(
        root=load("omegaconf.OmegaConf.to_container")(root, resolve=False),
        path=path,
        evaluate=lambda at: _evaluate(root, at),
        sites=root.__dict__.get("_tl_sites", {}),
    )


def _evaluate(config: Any, path: Path) -> Any:
    to_container = load("omegaconf.OmegaConf.to_container")
    for key in path:
        config = config[key]
    return to_container(config) if is_config_object(config) else config


def _plain(value: Any, open_ids: set[int]) -> Any:
    """Copy of dicts and lists with configs inside opened; a cycle is an error."""
    if not isinstance(value, dict | list):
        if is_config_object(value) and hasattr(value, "_get_root"):
            return load("omegaconf.OmegaConf.to_container")(value, resolve=False)
        return value
    if id(value) in open_ids:
        raise BuildError("The config contains itself.")
    open_ids.add(id(value))
    try:
        if isinstance(value, dict):
            return {key: _plain(item, open_ids) for key, item in value.items()}
        return [_plain(item, open_ids) for item in value]
    except RecursionError:
        raise BuildError("The config is nested too deeply.") from None
    finally:
        open_ids.discard(id(value))
