"""Errors of predicates and of the capture itself: raised inside the forward, or kept until after it."""

from tl_integrations.capture.selector import Selector
from tl_integrations.errors import PredicateError


class ErrorLedger:
    """Keeps errors up to a limit, and counts them all; or raises the first at once.

    What is raised has its frames, and these must not have it: such a circle keeps all that a forward computed
    until the garbage collector comes.
    """

    def __init__(self, fails_fast: bool, limit: int, selector: Selector) -> None:
        self._fails_fast = fails_fast
        self._limit = limit
        self._selector = selector
        self.errors: list[Exception] = []
        self._count = 0

    def note(self, error: Exception) -> None:
        """Deal with an error that came while a forward is watched."""
        if self._fails_fast:
            error.add_note(f"Raised while capturing with save={self._selector!r}.")
            try:
                raise error
            finally:
                del error
        self._count += 1
        if len(self.errors) < self._limit:
            self.errors.append(error)

    def clear(self) -> None:
        """Forget what was kept."""
        self.errors, self._count = [], 0

    def raise_all(self) -> None:
        """Raise what was kept as one error, and forget it.

        Raises:
            PredicateError: from the first, with all of them in `failures`.
        """
        if not self.errors:
            return
        errors, count = self.errors, self._count
        self.clear()
        try:
            raise self._summary(errors, count) from errors[0]
        finally:
            del errors

    def _summary(self, errors: list[Exception], count: int) -> PredicateError:
        first = errors[0]
        summary = PredicateError(
            f"{count} event{'s' if count > 1 else ''} could not be captured with save={self._selector!r}; "
            f"the first: {type(first).__name__}: {first}"
        )
        summary.failures, summary.total_count = tuple(errors), count
        return summary
