"""Compiled code runs eagerly while a capture watches: compiled, it shows nothing, or is compiled anew.

torch keeps one stance for the whole process, so the first capture sets it and the last one puts back what was
there, in whatever order captures on several threads end.
"""

import threading
from contextlib import AbstractContextManager
from typing import Any

import torch

_LOCK = threading.RLock()
_USERS: set[int] = set()
_held: list[AbstractContextManager[Any]] = []


def force(user: object) -> None:
    """Run compiled code eagerly until every user released it."""
    with _LOCK:
        _USERS.add(id(user))
        if not _held:
            # It takes hold when it is made; entering it as well would only do so again.
            _held.append(torch.compiler.set_stance("force_eager"))


def release(user: object) -> None:
    """Give up eagerness; may be repeated."""
    with _LOCK:
        _USERS.discard(id(user))
        if not _USERS and _held:
            _held.pop().__exit__(None, None, None)
