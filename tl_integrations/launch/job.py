"""What the running Hydra job says about itself: its output folder and its config."""

from enum import Enum
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf


def run_folder() -> Path | None:
    """The output folder of the Hydra job that runs in this process, or None outside a job."""
    if not HydraConfig.initialized():
        return None
    runtime = HydraConfig.get().runtime
    return None if OmegaConf.is_missing(runtime, "output_dir") else Path(runtime.output_dir)


def job_config() -> dict[str, Any] | None:
    """The running job's own config as plain containers, or None outside a job.

    Interpolations stay as they are written, so a secret behind `oc.env` is not in it; Hydra's node is left
    out.
    """
    if not HydraConfig.initialized():
        return None
    # Hydra hangs its node into the whole config, so that `${hydra:...}` can refer to the user's keys.
    hydra_node: Any = HydraConfig.get()
    whole = hydra_node._get_parent()
    return None if whole is None else task_part(whole)


def task_part(config: DictConfig) -> dict[str, Any]:
    """A composed config without Hydra's node, unresolved, as plain containers of plain values."""
    tree: Any = OmegaConf.to_container(config, resolve=False, enum_to_str=True)
    return {str(key): plain(value) for key, value in tree.items() if key != "hydra"}


def plain(value: Any) -> Any:
    """`value` with what JSON and a safe YAML loader cannot hold written as text."""
    if isinstance(value, dict):
        return {key: plain(child) for key, child in value.items()}
    if isinstance(value, list):
        return [plain(child) for child in value]
    if isinstance(value, Path):
        return value.as_posix()
    return value.name if isinstance(value, Enum) else value
