"""Meet Hydra: what a running job knows of itself."""

from tl_integrations.launch.job import job_config, run_folder

__all__ = ["job_config", "run_folder"]
