"""When to capture: schedules as values, from steps, epochs, time and what happens in training."""

from tl_integrations.schedule.algebra import Schedule
from tl_integrations.schedule.context import Observation, StepContext
from tl_integrations.schedule.parsing import as_schedule, parse
from tl_integrations.schedule.predicates import when
from tl_integrations.schedule.reactive import every_seconds, limit, on_loss_spike, on_nonfinite
from tl_integrations.schedule.schedules import (
    always,
    at,
    every,
    every_epoch,
    first,
    last,
    log_spaced,
    never,
    windows,
)

__all__ = [
    "Observation",
    "Schedule",
    "StepContext",
    "always",
    "as_schedule",
    "at",
    "every",
    "every_epoch",
    "every_seconds",
    "first",
    "last",
    "limit",
    "log_spaced",
    "never",
    "on_loss_spike",
    "on_nonfinite",
    "parse",
    "when",
    "windows",
]
