"""How far a bundle is written: what has to be known to go on with it, or to take a failed commit back."""

from dataclasses import dataclass, field
from typing import TypeAlias

from tl_integrations.storage.tlspec import NO_STEP, Plain

State: TypeAlias = tuple[int, int, frozenset[str], tuple[int, int, int, int]]


@dataclass(slots=True, kw_only=True)
class Counts:
    """What a bundle holds and what it lacks."""

    records: int = 0
    gradients: int = 0
    commits: int = 0
    nbytes: int = 0
    dropped_steps: int = 0
    """Left out because the queue was full or the limit was reached."""
    dropped_records: int = 0
    lost_steps: int = 0
    """Could not be written."""


@dataclass(slots=True, kw_only=True)
class Position:
    """Where the next line goes: what has to be known to go on with a bundle."""

    record: int = 0
    """Number of the first record of the shard."""
    commit: int = 0
    shard: int = 1
    generation: int = 0
    last_step: int = NO_STEP
    """The largest training step committed so far."""
    shards: list[Plain] = field(default_factory=list)
    indexes: list[Plain] = field(default_factory=list)
    graphs: frozenset[str] = frozenset()
    """Ids of the graphs whose lines are there."""
    counts: Counts = field(default_factory=Counts)

    def state(self) -> State:
        """What a failed commit has to put back."""
        counts = self.counts
        numbers = (counts.records, counts.gradients, counts.commits, counts.nbytes)
        return self.last_step, self.generation, self.graphs, numbers

    def restore(self, state: State) -> None:
        self.last_step, self.generation, self.graphs, numbers = state
        counts = self.counts
        counts.records, counts.gradients, counts.commits, counts.nbytes = numbers
