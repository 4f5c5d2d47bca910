"""Meet Hydra: configs from code as group options, and what a running job knows of itself."""

from tl_integrations.launch.drift import assert_configs_current
from tl_integrations.launch.groups import register_all
from tl_integrations.launch.job import job_config, run_folder

__all__ = ["assert_configs_current", "job_config", "register_all", "run_folder"]
