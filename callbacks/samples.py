"""SampleReader: the sample ids of a batch, for the captures made of it."""

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.samples import samples_record
from tl_integrations.errors import CaptureError


class SampleReader:
    """Reads sample ids out of batches as `sample_ids=` says.

    What fails while reading is raised by `take`, where the monitor's `on_error` holds, and not in the step.

    Args:
        where: A key of batches that are mappings; `"pkg.module:function"` or the function itself, given the
            batch; a position in batches that are sequences.
    """

    def __init__(self, where: str | int | Callable[[Any], Any]) -> None:
        self._where = where
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


def ids_of(batch: Any, where: str | int | Callable[[Any], Any]) -> Any:
    """The sample ids in a batch.

    Raises:
        CaptureError: if the batch has no such key or position.
    """
    if callable(where):
        return where(batch)
    if isinstance(where, str) and ":" in where:
        module, _, name = where.partition(":")
        return getattr(import_module(module), name)(batch)
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
