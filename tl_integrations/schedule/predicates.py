"""`when`: the user's own function decides."""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
from importlib import import_module
from typing import Any

from tl_integrations.errors import ScheduleError
from tl_integrations.schedule.algebra import Schedule
from tl_integrations.schedule.context import StepContext


@dataclass(frozen=True, repr=False)
class When(Schedule):
    """The steps for which a function of the `StepContext` returns True.

    A schedule must be writable in a config and picklable, so the function lives in a module. It is imported
    when the schedule is first asked, which is before the first step.

    Args:
        function: `"package.module:name"`, or a function defined at the top of a module.
    """

    function: str | Callable[[StepContext], bool]
    _found: list[Any] = field(default_factory=list, init=False, compare=False)
    name = "when"

    def __post_init__(self) -> None:
        path = self.function
        if not isinstance(path, str):
            path = f"{getattr(path, '__module__', '?')}:{getattr(path, '__qualname__', '?')}"
        module, _, attribute = path.partition(":")
        if not all(part.isidentifier() for part in (*module.split("."), *attribute.split("."))):
            raise ScheduleError(
                f"when: {self.function!r} cannot be written in a config. "
                "Name a function at the top of a module: when('package.module:function')."
            )
        object.__setattr__(self, "function", path)

    def next_after(self, step: int) -> int | None:
        self._resolved()
        return step + 1

    def should_capture(self, context: StepContext) -> bool:
        function = self._resolved()
        try:
            answer = function(context)
        except Exception as error:
            error.add_note(f"while {self!r} decided on step {context.step}")
            raise
        if not isinstance(answer, bool):
            raise ScheduleError(
                f"{self!r} answered {answer!r} for step {context.step}. Return True or False."
            )
        return answer

    def _resolved(self) -> Callable[[StepContext], object]:
        if not self._found:
            module, _, attribute = str(self.function).partition(":")
            try:
                found = reduce(getattr, attribute.split("."), import_module(module))
            except (ImportError, AttributeError) as error:
                raise ScheduleError(
                    f"{self!r}: {error}. Name a function that can be imported, as package.module:function."
                ) from error
            if not callable(found):
                raise ScheduleError(f"{self!r}: {found!r} cannot be called. Name a function.")
            self._found.append(found)
        return self._found[0]  # type: ignore[no-any-return]


when = When
