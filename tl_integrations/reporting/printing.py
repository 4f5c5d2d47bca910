"""Names from files at a terminal."""

from rich.text import Text


def shown(text: str) -> Text:
    """A name as it is written: control characters, direction marks and markup are shown, not obeyed."""
    return Text(
        "".join(c if c.isprintable() else c.encode("unicode_escape", "replace").decode() for c in text)
    )
