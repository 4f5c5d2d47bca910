"""What a run is going to capture, left as a text in its loggers."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tl_integrations.errors import ScheduleError
from tl_integrations.reporting.tensorboard import write_text
from tl_integrations.reporting.texts import capture_text
from tl_integrations.schedule.algebra import Schedule

HORIZON = 1000
"""Steps that are looked ahead."""


def log_plan(
    loggers: Sequence[Any], schedule: Schedule, selector: str, bundle: Path | None, prefix: str, step: int
) -> None:
    """Write schedule, selection, the steps ahead and the bundle's place to every logger that takes text."""
    try:
        ahead = schedule.preview(HORIZON)
    except ScheduleError:
        # Epochs have no length before the loaders are there.
        ahead = []
    text = capture_text(schedule=repr(schedule), selector=selector, preview=ahead, bundle=bundle)
    for logger in loggers:
        write_text(logger.experiment, f"{prefix}capture/plan", text, step)
