"""Where the user's code called something: the nearest frame outside torch and this package.

A place is noted as code and offset; which line that is is worked out when somebody asks.
"""

import os
from bisect import bisect_right
from pathlib import Path
from types import CodeType, FrameType

import torch

Place = tuple[CodeType, int]
"""Code, and the offset of an instruction in it."""

USERS_CODE: dict[int, CodeType] = {}
"""Code outside torch and this package that was met, by its id: hashing code would take longer than all."""
_INNER_CODE: dict[int, CodeType] = {}
_LINES: dict[int, tuple[list[int], list[int]]] = {}
"""Offsets where lines begin and their numbers, of code in `USERS_CODE`."""
STAMPS: dict[str, tuple[int, int] | None] = {}
"""Modification time in ns and size of the files of user code, as they were when the code was first met."""
_HOMES = (torch.__path__[0], str(Path(__file__).parent))


def user_place(
    frame: FrameType | None, known: CodeType | None = None, its_place: Place | None = None
) -> Place | None:
    """The place in the nearest of the user's frames, from this one outwards; None where there is none.

    Args:
        frame: Where the search begins.
        known: Code, not the user's, for which the answer is known, so that no frame beyond it is looked at:
            looking at one makes an object of it.
        its_place: That answer.
    """
    while frame is not None:
        code = frame.f_code
        number = id(code)
        if number in USERS_CODE or (number not in _INNER_CODE and _is_users(code)):
            return code, frame.f_lasti
        if code is known:
            return its_place
        frame = frame.f_back
    return None


def line_of(place: Place | None) -> tuple[str, int]:
    """File and line of a place, as a traceback would say them."""
    if place is None:
        return "", 0
    code, offset = place
    lines = _LINES.get(id(code))
    if lines is None:
        starts = [(start, line or code.co_firstlineno) for start, _, line in code.co_lines()]
        lines = _LINES[id(code)] = [start for start, _ in starts], [line for _, line in starts]
    return code.co_filename, lines[1][bisect_right(lines[0], offset) - 1]


def _is_users(code: CodeType) -> bool:
    if code.co_filename.startswith(_HOMES):
        _INNER_CODE[id(code)] = code
        return False
    USERS_CODE[id(code)] = code
    if code.co_filename not in STAMPS:
        try:
            stat = os.stat(code.co_filename)
            STAMPS[code.co_filename] = (stat.st_mtime_ns, stat.st_size)
        except OSError:
            STAMPS[code.co_filename] = None
    return True
