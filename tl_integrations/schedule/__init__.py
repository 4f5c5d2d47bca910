"""When to capture."""
