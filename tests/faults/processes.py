"""Children made by fork, watched by their parent."""

import os
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass

HANG_SECONDS = 30.0


@dataclass(frozen=True)
class Ended:
    """How a child ended and what it said."""

    lines: list[str]
    status: int
    """As `os.waitstatus_to_exitcode` gives it: negative for a signal."""


def child(work: Callable[[Callable[[str], None]], None], kill_after: float | None = None) -> Ended:
    """Run `work(say)` in a fork of this process; a line that was said is known to the parent at once.

    Args:
        kill_after: Seconds until the parent kills it.
    """
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        _be_child(work, reading, writing)
    os.close(writing)
    return _watch(pid, reading, kill_after)


def _be_child(work: Callable[[Callable[[str], None]], None], reading: int, writing: int) -> None:
    os.close(reading)
    code = 1
    try:
        work(lambda text: os.write(writing, f"{text}\n".encode()))  # type: ignore[arg-type, return-value]
        code = 0
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
    finally:
        os._exit(code)


def _watch(pid: int, reading: int, kill_after: float | None) -> Ended:
    content, began, killed = b"", time.monotonic(), False
    while True:
        passed = time.monotonic() - began
        if kill_after is not None and passed >= kill_after and not killed:
            killed = True
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if passed > HANG_SECONDS:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise AssertionError(f"the child hung; it had said {content[-200:]!r}")
        wait = 1.0 if kill_after is None or killed else max(kill_after - passed, 0.0)
        if select.select([reading], [], [], wait)[0]:
            piece = os.read(reading, 1 << 16)
            if not piece:
                break
            content += piece
    os.close(reading)
    _, status = os.waitpid(pid, 0)
    # A line that was cut off was never said.
    lines = content.decode().split("\n")[:-1]
    return Ended(lines, os.waitstatus_to_exitcode(status))
