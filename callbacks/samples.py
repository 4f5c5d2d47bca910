"""SampleReader: the sample ids of a batch, for the captures made of it."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.samples import samples_record
from tl_integrations.errors import CaptureError, OptionError

Where = str | int | Callable[[Any], Any]


class SampleReader:
    """Reads sample ids out of batches as `sample_ids=` says.

    What fails while reading is raised by `take`, where the monitor's `on_error` holds, and not in the step.

    Args:
        where: A key of batches that are mappings; `"pkg.module:function"` or the function itself, given the
            batch; a position in batches that are sequences.

    Raises:
        OptionError: if the import path leads to no function.
    """

    def __init__(self, where: Where) -> None:
        self._where = imported(where) if isinstance(where, str) and ":" in where else where
        self._unread: list[tuple[Moment, Any]] = []

    def read(self, moment: Moment, args: tuple[Any, ...]) -> None:
        """Remember the ids of the batch that a step method is given first; an iterator has none yet."""
        self._unread.append((moment, args[0] if args else None))

    def forget(self) -> None:
        """Forget the batches that were not taken: their step did not end."""
        self._unread = []

    def take(self) -> list[Record]:
        """A record for each batch since the last call.

        Raises:
            CaptureError: if a batch has no integers there.
        """
        unread, self._unread = self._unread, []
        return [samples_record(moment, ids_of(batch, self._where)) for moment, batch in unread]


def imported(path: str) -> Callable[[Any], Any]:
    """The function at `"pkg.module:function"`.

    Raises:
        OptionError: if there is none.
    """
    module, _, name = path.partition(":")
    try:
        found = getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as error:
        raise OptionError(
            f"sample_ids={path!r}: {error}. Name an importable function, as 'package.module:function'."
        ) from error
    if not callable(found):
        raise OptionError(f"sample_ids={path!r} is {found!r}, which cannot be called. Name a function.")
    function: Callable[[Any], Any] = found
    return function


def ids_of(batch: Any, where: Where) -> Any:
    """The sample ids in a batch.

    Raises:
        CaptureError: if the batch has no such key or position.
    """
    if callable(where):
        return where(batch)
    fits = isinstance(batch, Mapping) if isinstance(where, str) else isinstance(batch, tuple | list)
    try:
        if fits:
            return batch[where]
    except LookupError:
        pass
    keys = f" with keys {', '.join(map(repr, batch))}" if isinstance(batch, Mapping) else ""
    raise CaptureError(
        f"sample_ids={where!r} is not in a batch of type {type(batch).__name__}{keys}. "
        "Give a key of the batch, a position in it, or a function of it."
    )
