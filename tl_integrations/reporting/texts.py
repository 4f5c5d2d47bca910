"""Texts that a board carries: the config, what is captured when, which steps were, where the bundle lies."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

MOST_STEPS = 40
"""Steps that a list writes out; of longer ones the middle is left out."""


def config_text(config: Mapping[str, Any] | str) -> str:
    """A config as Markdown: its YAML in a fence that no content can close."""
    text = config if isinstance(config, str) else yaml.safe_dump(dict(config), sort_keys=False)
    fence = "```"
    while fence in text:
        fence += "`"
    return f"{fence}yaml\n{text.rstrip()}\n{fence}"


def capture_text(
    *, schedule: str, selector: str, preview: Sequence[int] = (), bundle: Path | str | None = None
) -> str:
    """What a run captures, as a Markdown table.

    Args:
        schedule: Text of the schedule.
        selector: Text of the selector.
        preview: The first steps that will be captured, as far as that is known.
        bundle: Where the records lie; `tl.load` opens it.
    """
    rows = {"schedule": f"`{schedule}`", "save": f"`{selector}`"}
    if preview:
        rows["planned steps"] = step_list(preview)
    if bundle is not None:
        rows["bundle"] = f"`{bundle}` (`tl.load({str(bundle)!r})`)"
    lines = [f"| {name} | {_cell(value)} |" for name, value in rows.items()]
    return "\n".join(["| | |", "|---|---|", *lines])


def step_list(steps: Sequence[int]) -> str:
    """Steps with commas; in place of the middle of a long list, how many it has."""
    if len(steps) <= MOST_STEPS:
        return ", ".join(map(str, steps))
    half = MOST_STEPS // 2
    first, last = ", ".join(map(str, steps[:half])), ", ".join(map(str, steps[-half:]))
    return f"{first}, ... ({len(steps) - MOST_STEPS} more) ..., {last}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
