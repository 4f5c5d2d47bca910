"""Meet Hydra."""
