"""Several bundles at once: the runs of a sweep."""

import glob
import os
from pathlib import Path

from tl_integrations.capture.recording import Recording
from tl_integrations.errors import BundleIOError
from tl_integrations.storage.reader import load


def load_runs(pattern: str | os.PathLike[str]) -> dict[str, Recording]:
    """Open every bundle that a glob matches, such as `"multirun/**/run.tlspec"`.

    Returns: recordings by path, in the order of the paths.
    Raises:
        BundleIOError: if nothing matches.
        BundleError: for the first bundle that does not open, its path in the message.
    """
    paths = sorted(glob.glob(os.fspath(pattern), recursive=True))
    if not paths:
        raise BundleIOError(f"No bundle matches {os.fspath(pattern)!r}, seen from {str(Path.cwd())!r}.")
    return {path: load(path) for path in paths}
