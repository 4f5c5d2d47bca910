"""Writing small text files whole."""

import os
from pathlib import Path
from uuid import uuid4


def write_whole(path: str | os.PathLike[str], text: str) -> None:
    """Write beside the place and rename, so that a reader sees the old file or the new one.

    Folders that are not there are made. After a failure no partial file is left.

    Args:
        path: Where the file goes; one that stands there is replaced.
        text: Written as UTF-8, its line ends as they are.

    Raises:
        OSError: if the folder cannot be made or written.
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f".{target.name}.{uuid4().hex}.part")
    try:
        part.write_text(text, encoding="utf-8", newline="\n")
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise
