"""Writing small text files whole."""

import tempfile
from pathlib import Path


def write_whole(path: Path, text: str) -> None:
    """Write next to the place and rename, so that a reader sees the old file or the new one.

    Raises: OSError when the folder cannot be made or written; no partial file is left behind then.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile("w", dir=path.parent, delete=False, encoding="utf-8") as file:
        part = Path(file.name)
        try:
            file.write(text)
        except BaseException:
            part.unlink()
            raise
    part.chmod(0o644)  # a temporary file is private to its user
    part.replace(path)
