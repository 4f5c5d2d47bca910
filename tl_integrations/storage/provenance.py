"""Where a bundle comes from: versions, and the git state of the code that ran."""

import os
import platform
import shutil
import subprocess
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

_GIT_SECONDS = 2.0


def _now() -> str:
    return datetime.fromtimestamp(time.time(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@cache
def producer() -> dict[str, str]:
    """Versions of what writes bundles here."""
    found = {"python": platform.python_version(), "platform": platform.platform()}
    for name in ("tl_integrations", "torch", "safetensors", "lightning"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


@cache
def git_state(folder: str) -> dict[str, Any]:
    """Commit and dirty flag of the checkout around `folder`; empty outside of one.

    Read once per process and folder: the code that runs was loaded then.
    """
    if shutil.which("git") is None:
        return {}
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return {}
    changes = _git(folder, "--no-optional-locks", "status", "--porcelain", "--untracked-files=no")
    return {"git_commit": commit, "git_dirty": None if changes is None else bool(changes)}


def _git(folder: str, *arguments: str) -> str | None:
    command = ["git", "-C", folder, *arguments]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_GIT_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip()


def _provenance() -> dict[str, Any]:
    return git_state(os.getcwd())


def _new_id() -> str:
    return uuid.uuid4().hex


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """What makes two bundles of the same records differ; fixed for golden bundles."""

    new_id: Callable[[], str] = _new_id
    now: Callable[[], str] = _now
    """UTC, to the second."""
    producer: Callable[[], dict[str, str]] = field(default=producer)
    provenance: Callable[[], dict[str, Any]] = field(default=_provenance)


IDENTITY = Identity()
"""Of bundles that users write."""
