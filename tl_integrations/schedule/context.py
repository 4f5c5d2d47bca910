"""Where training is: what a schedule is asked about, and what it is told afterwards."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """A frozen picture of the loop when a step begins.

    The loop fills in what it knows; a plain loop may give nothing but `step`.
    """

    step: int
    """0-based: the number that loggers get for the metrics of this step."""
    epoch: int = 0
    """0-based."""
    batch: int = 0
    """Batches since training began, each microbatch counted."""
    batch_in_epoch: int = 0
    """Batches since the epoch began, each microbatch counted."""
    stage: str = "train"
    """`"train"`, `"validate"`, `"test"` or `"predict"`."""
    accumulate: int = 1
    """How many microbatches make one step."""
    microbatch: int = 0
    """Which of them this is, 0-based."""
    is_last_microbatch: bool = True
    """Whether the optimizer steps after it."""
    total_steps: int | None = None
    """Steps of the whole run; None where that is not known."""
    seconds: float = 0.0
    """Seconds since training began in this process."""
    last_loss: float | None = None
    """Newest loss that is already on the host; it may be a step late."""
    rank: int = 0
    """This process among `world_size`, 0-based."""
    world_size: int = 1
    """Processes that train together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a step turned out to be; reactive schedules learn from it."""

    context: StepContext
    """The step that ended."""
    loss: float | None = None
    """Its loss, not divided by `accumulate`; None where there was none."""
    origin: str | None = None
    """Where a value of it was seen that was not finite, in words; None: none was seen."""
    captured: bool = False
    """The step was captured."""
    next_step: int | None = None
    """The first step that can still be captured; None: the one after `context.step`."""

    @property
    def upcoming(self) -> int:
        """The first step that can still be captured."""
        return self.context.step + 1 if self.next_step is None else self.next_step
