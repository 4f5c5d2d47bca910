"""Plain configs as comparable text: NaN equals itself, -0.0 differs from 0.0, 1 from True."""

from typing import Any


def canonical(value: Any) -> str:
    """One text per distinct plain value; the order of keys counts."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{canonical(key)}: {canonical(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(canonical, value)) + "]"
    return repr(str(value)) if isinstance(value, str) else repr(value)
