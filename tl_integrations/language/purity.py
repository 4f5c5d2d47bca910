"""Whether running a thunk twice gives the same config and leaves random generators alone."""

import random
import sys
from collections.abc import Callable
from typing import Any

from tl_integrations.errors import TraceError
from tl_integrations.language.canonical import canonical


def _generators() -> dict[str, Any]:
    """Fingerprints of the global random generators of libraries that are loaded."""
    states: dict[str, Any] = {"random": random.getstate()}
    numpy, torch = sys.modules.get("numpy"), sys.modules.get("torch")
    if numpy is not None:
        name, keys, *rest = numpy.random.get_state()
        states["numpy.random"] = (name, keys.tobytes(), *rest)
    if torch is not None:
        states["torch"] = torch.get_rng_state().numpy().tobytes()
    return states


def check(first: Any, again: Callable[[], Any]) -> None:
    """Raise TraceError when a second run differs from the first or draws random numbers."""
    before = _generators()
    second = again()
    drawn = [name for name, state in _generators().items() if before.get(name, state) != state]
    if drawn:
        raise TraceError(
            f"The thunk drew random numbers from {', '.join(drawn)}. Pass a seed to a builder instead."
        )
    texts = [canonical(getattr(run, "content", run)) for run in (first, second)]
    if texts[0] != texts[1]:
        raise TraceError(
            f"The thunk gave two different configs in a row:\n{texts[0]}\n{texts[1]}\nMake it a function of "
            f"plain values."
        )
