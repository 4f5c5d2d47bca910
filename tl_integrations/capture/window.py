"""The ops just before, as `preceded_by`, `followed_by` and predicates see them while a forward runs."""

import warnings
from collections import deque
from dataclasses import replace
from typing import Any
from weakref import ref

from torch import Tensor

from tl_integrations.capture.effects import flat_tensors
from tl_integrations.capture.events import Event
from tl_integrations.capture.windows import Succession

DEFAULT_SIZE = 8
"""How many ops are seen where `lookback` is 0."""


class Candidate:
    """An op that is kept if the right op reads its result soon."""

    __slots__ = ("caught", "number", "tensor")

    def __init__(self, number: int, tensor: Tensor, caught: Any) -> None:
        self.number: int = number
        self.tensor: ref[Tensor] = ref(tensor)
        self.caught: Any = caught


class Window:
    """The last ops of a run, and the payloads that `followed_by` may still keep.

    Two bounded queues: `size` ops, and `lookback` candidates with their payloads. A candidate is kept only
    while both hold it.
    """

    def __init__(self, lookback: int, succession: Succession | None) -> None:
        self.succession = succession
        self.size: int = lookback or DEFAULT_SIZE
        self._events: deque[Event] = deque(maxlen=self.size)
        self._ring: deque[Candidate] = deque(maxlen=lookback)
        self._seen: dict[int, Candidate] = {}
        self._warned = lookback == 0
        self.op_count: int = 0

    @property
    def events(self) -> tuple[Event, ...]:
        """The last ops, oldest first."""
        return tuple(self._events)

    def push(self, event: Event) -> None:
        """Note an op that just ran."""
        self.op_count += 1
        # Without its own window, or each event would hold all those before it.
        self._events.append(replace(event, recent_ops=()))

    def remember(self, tensor: Tensor, caught: Any) -> None:
        """Hold a candidate's payload for a while."""
        candidate = Candidate(self.op_count, tensor, caught)
        self._seen[id(tensor)] = candidate
        self._ring.append(candidate)

    def confirmed(self, args: Any, kwargs: Any) -> list[Any]:
        """What is kept of the candidates whose results these arguments are."""
        found = []
        for tensor in flat_tensors((*args, *kwargs.values()) if kwargs else args):
            candidate = self._seen.get(id(tensor))
            if candidate is None or candidate.tensor() is not tensor or candidate.caught is None:
                continue
            if candidate in self._ring and self.op_count - candidate.number < self.size:
                found.append(candidate.caught)
                candidate.caught = None
            else:
                self._warn_outside(candidate)
        return found

    def _warn_outside(self, candidate: Candidate) -> None:
        if not self._warned:
            self._warned = True
            warnings.warn(
                f"{candidate.caught.short_label or candidate.caught.func_name} is followed as asked, but is "
                f"outside the lookback window of {self._ring.maxlen}; it was not kept. Increase lookback.",
                RuntimeWarning,
                stacklevel=2,
            )
