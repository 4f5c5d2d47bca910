"""Strings that would mean something to OmegaConf, written so that they come back letter by letter."""

import re
from typing import Any
from urllib.parse import quote

from tl_integrations.language.nodes import MARK

_SPECIAL = re.compile(r"\$\{|^\?\?\?$|[\ud800-\udfff]|" + re.escape(MARK))


def needs_escape(text: str) -> bool:
    """Whether OmegaConf or YAML would change `text`, or it holds the mark of a recorded call."""
    return not text.isalnum() and _SPECIAL.search(text) is not None


def literal(text: str) -> dict[str, Any]:
    """A node that gives exactly `text`, on every Hydra: no number of backslashes does."""
    if any("\ud800" <= letter <= "\udfff" for letter in text):
        return {
            "_target_": "urllib.parse.unquote",
            "_args_": [quote(text, safe="", errors="surrogatepass"), "utf-8", "surrogatepass"],
        }
    escaped = text.replace("%", "%25").replace("$", "%24")
    if escaped.startswith("?"):
        escaped = "%3F" + escaped[1:]
    return {"_target_": "urllib.parse.unquote", "_args_": [escaped]}
