"""Keep records beyond the step."""
