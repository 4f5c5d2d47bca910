"""Watch a model, keep what was asked for."""
