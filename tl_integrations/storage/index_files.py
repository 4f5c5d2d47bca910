"""The index files of a finished bundle: checked when it is opened, read again when more of them is needed.

A million records have 120 MB of columns, of which a reader looks at few: the rest stays on disk. A file that
is not what the manifest tells of any more is refused then, as it would have been at the beginning.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache, partial
from pathlib import Path

import numpy as np

from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage.columns import Segment
from tl_integrations.storage.filesystem import Disk, Folder
from tl_integrations.storage.shards import decode_table
from tl_integrations.storage.tlspec import INDEX_LIMIT, Plain, sum_of

Columns = Mapping[str, np.ndarray]
_READ_AT_ONCE = 4
"""Files whose columns are in memory; a bundle of up to 65,536 records is read once."""
_LOOKED_UP = ("step", "moment", "site")
"""What finding records needs: it stays in memory, 8 bytes a record and less than 8 for what repeats."""
_TO_OPEN = ("commit", "commits")


class IndexFiles:
    """Reads the index files of one bundle.

    Args:
        bundle: Its id, which every file has to state.
    """

    def __init__(self, path: Path, disk: Disk, bundle: str) -> None:
        self._path, self._disk, self._bundle = path, disk, bundle
        self._read = lru_cache(_READ_AT_ONCE)(self._columns)
        self._given: list[LazyColumns] = []

    def segment(self, entry: Plain) -> Segment:
        """The segment that a manifest's entry speaks of.

        Raises:
            BundleCorruptError: if its file is another one, or damaged.
        """
        again = partial(self._read, entry["name"], entry["nbytes"], entry["sum"])
        columns, about = again()
        where = str(self._path / entry["name"])
        if about.get("bundle") != self._bundle:
            raise BundleCorruptError(f"{where!r} belongs to another bundle.")
        segment = Segment.of_table(columns, about, where)
        # Read now, so that it does not need the file again.
        _ = segment.lines
        segment.columns = given = LazyColumns(columns, lambda: again()[0])
        self._given.append(given)
        return segment

    def opened(self) -> None:
        """Let go of what only opening needs."""
        for columns in self._given:
            columns.forget(_TO_OPEN)
        self._given.clear()

    def _columns(self, name: str, nbytes: int, checksum: str) -> tuple[Columns, Mapping[str, str]]:
        where = str(self._path / name)
        with Folder(self._path, self._disk) as folder:
            content = folder.read(name, INDEX_LIMIT)
        if len(content) != nbytes or sum_of(content) != checksum:
            raise BundleCorruptError(
                f"{where!r} is not what the manifest tells of. `tl.recover(path)` reads the lines instead."
            )
        return decode_table(content, where)


class LazyColumns(Mapping[str, np.ndarray]):
    """Columns of which some are in memory; the others are read when they are asked for."""

    def __init__(self, columns: Columns, read: Callable[[], Columns]) -> None:
        self._names, self._read = frozenset(columns), read
        self._here = {name: _small(columns[name]) for name in _LOOKED_UP}
        self._here |= {name: columns[name].copy() for name in _TO_OPEN}

    def __getitem__(self, name: str) -> np.ndarray:
        here = self._here.get(name)
        return self._read()[name] if here is None else here

    def __contains__(self, name: object) -> bool:
        return name in self._names

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def forget(self, names: Iterable[str]) -> None:
        """Keep these columns on disk only."""
        for name in names:
            self._here.pop(name, None)


def _small(column: np.ndarray) -> np.ndarray:
    """The same numbers in less memory."""
    if len(column) and (column == column[0]).all():
        return np.broadcast_to(column[:1].copy(), column.shape)
    return column.copy()
