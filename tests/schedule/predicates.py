"""Functions that `when` schedules name."""

from tl_integrations.schedule import StepContext

not_callable = 3


def odd(context: StepContext) -> bool:
    return context.step % 2 == 1


def undecided(context: StepContext) -> int:
    return context.step


def broken(context: StepContext) -> bool:
    raise KeyError("broken")
