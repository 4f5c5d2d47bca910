"""Several bundles at once: the runs of a sweep."""

import glob
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.table import Table

from tl_integrations.capture.recording import Recording
from tl_integrations.errors import BundleIOError
from tl_integrations.storage.reader import load


class Runs(dict[str, Recording]):
    """Recordings by path. `rich.print(runs)` shows one table; `pandas.DataFrame(runs.rows())` is the same."""

    def rows(self) -> list[dict[str, Any]]:
        """One row per run: its path, how it ended, its captured steps, and the config keys that differ."""
        configs = [dict(flat(run.config or {})) for run in self.values()]
        keys = dict.fromkeys(key for config in configs for key in config)
        told = [key for key in keys if len({repr(config.get(key)) for config in configs}) > 1]
        return [
            {
                "run": path,
                "status": run.status,
                "steps": len(run.steps),
                "last": run.steps[-1] if run.steps else None,
                **{key: config.get(key) for key in told},
            }
            for (path, run), config in zip(self.items(), configs)
        ]

    def __rich__(self) -> Table:
        rows = self.rows()
        table = Table(*(rows[0] if rows else ["run"]))
        for row in rows:
            table.add_row(*("" if value is None else str(value) for value in row.values()))
        return table


def flat(tree: Any, at: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of a plain config by dotted key; lists count as leaves."""
    if isinstance(tree, Mapping):
        for key, value in tree.items():
            yield from flat(value, f"{at}.{key}" if at else str(key))
    else:
        yield at, tree


def load_runs(pattern: str | os.PathLike[str]) -> Runs:
    """Open every bundle that a glob matches, such as `"multirun/**/run.tlspec"`.

    Args:
        pattern: A glob as for `glob.glob(..., recursive=True)`.
    Returns: recordings by path, in the order of the paths; printed, they are one table.
    Raises:
        BundleIOError: if nothing matches.
        BundleError: for the first bundle that does not open, its path in the message.
    """
    paths = sorted(glob.glob(os.fspath(pattern), recursive=True))
    if not paths:
        raise BundleIOError(f"No bundle matches {os.fspath(pattern)!r}, seen from {str(Path.cwd())!r}.")
    return Runs({path: load(path) for path in paths})
