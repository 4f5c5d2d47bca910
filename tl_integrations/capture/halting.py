"""Ending a forward early, where a predicate says so."""

from collections.abc import Callable
from typing import Any

from tl_integrations.capture.events import Event
from tl_integrations.errors import PredicateError


class HaltSignal(BaseException):
    """Leaves a forward; no Exception, so that a model's own `except Exception` does not swallow it."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


def check_halt(halt: Callable[[Event], Any], event: Event) -> None:
    """Raise HaltSignal when the predicate says True.

    Raises:
        PredicateError: if it says anything but True or False.
    """
    verdict = halt(event)
    if verdict is True:
        raise HaltSignal(event.label or event.address or event.func_name)
    if verdict is not False:
        raise PredicateError(f"halt returned {verdict!r} for {event.label!r}. Return True or False.")
