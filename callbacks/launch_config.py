"""The config half of a run: find the config that built the model and leave it where people look."""

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from torch import nn

from tl_integrations import language as L
from tl_integrations.errors import ConfigError, NoConfigError, TraceError
from tl_integrations.language.checkpoints import CHECKPOINT_KEY
from tl_integrations.language.lowering import to_plain
from tl_integrations.launch.job import job_config, run_folder
from tl_integrations.reporting.tensorboard import write_text
from tl_integrations.reporting.texts import config_text

RESOLVED = Path(".hydra") / "resolved.yaml"
"""Where the traced config of a Hydra job lies in its run folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchConfig:
    """The config that a run carries."""

    tree: Mapping[str, Any] | None
    """Plain data; None: nothing is known of how the model was built."""
    source: Literal["given", "provenance", "job", "none"]
    """Who said so: the user, the model's own record, or the Hydra job."""

    def yaml(self) -> str | None:
        """The config as Hydra YAML; None where nothing is known, or a target lives in the script that runs.

        Such a target has no name in another process, which is said in a warning.
        """
        if self.tree is None:
            return None
        try:
            return L.to_yaml(self.tree)
        except TraceError as error:
            warnings.warn(f"The config of this run is not written as YAML. {error}", stacklevel=2)
            return None


def launch_config(config: Any, model: nn.Module) -> LaunchConfig:
    """The config of a run: as given, else the model's own, else the Hydra job's.

    Args:
        config: A thunk of configurable calls, a config, or None.
        model: What the run trains.
    Raises:
        ConfigError: if `config` is a live module, which carries no config of its own here.
    """
    if config is not None:
        return LaunchConfig(tree=_given(config), source="given")
    try:
        return LaunchConfig(tree=L.config_of(model, as_dict=True), source="provenance")
    except NoConfigError:
        job = job_config()
        return LaunchConfig(tree=job, source="job" if job is not None else "none")


def keep_in_checkpoint(config: LaunchConfig, checkpoint: dict[str, Any]) -> None:
    """Put the config into a checkpoint as plain data, so that it loads with `weights_only=True`."""
    if config.tree is not None:
        checkpoint[CHECKPOINT_KEY] = dict(config.tree)


def write_resolved(config: LaunchConfig) -> Path | None:
    """Write the config's YAML into the folder of the running Hydra job.

    A file that stands there stays: it is the job's own snapshot, or an earlier fit's.

    Returns: The file, or None where no job runs or nothing is known.
    """
    folder = run_folder()
    text = config.yaml() if folder is not None else None
    if folder is None or text is None:
        return None
    path = folder / RESOLVED
    if path.exists():
        return path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def log_config(config: LaunchConfig, loggers: Sequence[Any], step: int) -> None:
    """Write the config as text to every logger whose experiment takes text."""
    text = config.yaml() if loggers else None
    if text is None:
        return
    for logger in loggers:
        write_text(logger.experiment, "config", config_text(text), step)


def _given(config: Any) -> Mapping[str, Any]:
    if isinstance(config, nn.Module):
        raise ConfigError(
            f"config= is a live {type(config).__name__}; reading its config would build it a second time. "
            "Give the thunk that builds it (`config=lambda: build(...)`), its config, "
            "or nothing when its class or builder is `@L.configurable`."
        )
    tree: Mapping[str, Any] = L.trace(config, as_dict=True) if callable(config) else to_plain(config)
    return tree
