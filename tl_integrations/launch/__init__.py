"""Meet Hydra: configs from code as group options, and what a running job knows of itself."""

from tl_integrations.launch.groups import register_all
from tl_integrations.launch.job import job_config, run_folder

__all__ = ["job_config", "register_all", "run_folder"]
