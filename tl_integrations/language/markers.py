"""Two texts that mean more than their letters: a value that must be given, and a wanted interpolation."""

import re

from tl_integrations.errors import TraceError

_REFERENCE = re.compile(r"\.*[^\s${}]+|\.+")


class Missing(str):
    """The type of `MISSING`: the builder must be given this argument before it can be built."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "L.MISSING"


class Reference(str):
    """The text of an interpolation that was asked for with `ref`."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"L.ref({self[2:-1]!r})"


MISSING = Missing("???")
"""Pass it as an argument to write `???`, which must be overridden before the config is built."""


def ref(key: str) -> Reference:
    """An interpolation to another key of the final config, as in `L.ref("optim.lr")` or `L.ref("..lr")`.

    Args:
        key: A dotted key; leading dots are relative, one for the mapping that holds the value. The form
            `"oc.env:HOME"` calls a resolver.
    Raises: TraceError when the key is empty or holds `$`, `{`, `}` or blanks.
    """
    if not isinstance(key, str) or not _REFERENCE.fullmatch(key):
        raise TraceError(
            f"L.ref() takes a key such as 'optim.lr' or '..lr', not {key!r}. The '${{...}}' around it is "
            f"added for you."
        )
    return Reference("${" + key + "}")
