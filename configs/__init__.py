"""Hydra config module: `pkg://tl_integrations.configs`."""
