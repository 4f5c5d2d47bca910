"""Registers the search path of `tl_integrations.configs` when Hydra starts."""
