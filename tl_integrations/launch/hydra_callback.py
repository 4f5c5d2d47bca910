"""The snapshot callback: the pinned config and the provenance of a job, in its run folder.

Chosen with `hydra/callbacks=[tl_snapshot]`. Hydra turns a failing callback into a warning and lets the job go
on, so a snapshot that cannot be written also says so in the log and leaves `resolved.FAILED` where
`resolved.yaml` would be.
"""

import json
import logging
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hydra.core.utils import JobReturn
from hydra.experimental.callback import Callback
from omegaconf import DictConfig, OmegaConf

from tl_integrations.language import to_yaml
from tl_integrations.language.files import write_whole
from tl_integrations.language.pinning import pinned
from tl_integrations.launch.job import task_part
from tl_integrations.launch.provenance import provenance

log: logging.Logger = logging.getLogger(__name__)


class SnapshotCallback(Callback):
    """Writes `.hydra/resolved.yaml` and `.hydra/provenance.json` into the folder of every job.

    `resolved.yaml` is the whole config of the application with the defaults of its targets written out, so
    that it still means the same when the code's defaults change. Interpolations stay as they are: a secret
    behind `oc.env` is never in it. `provenance.json` has versions, commit, overrides and, at the end, the
    job's status and duration.
    """

    def __init__(self) -> None:
        self._started = 0.0

    def on_job_start(self, config: DictConfig, **kwargs: Any) -> None:
        self._started = time.monotonic()
        folder = record_folder(config)
        with failure_noted(folder):
            tree, unpinned = pinned(task_part(config))
            text = to_yaml(tree)
            # As text: reading the items would resolve an `${oc.env:...}` written on the command line.
            overrides: Any = OmegaConf.to_container(config.hydra.overrides.task, resolve=False)
            facts = provenance(text, overrides, Path(config.hydra.runtime.cwd))
            write_whole(folder / "resolved.yaml", text)
            write_facts(folder, {**facts, "unpinned": unpinned, "status": "running"})

    def on_job_end(self, config: DictConfig, job_return: JobReturn, **kwargs: Any) -> None:
        folder = record_folder(config)
        with failure_noted(folder):
            facts = read_facts(folder)
            seconds = round(time.monotonic() - self._started, 3)
            # `return_value` raises the job's own exception when it failed; the status does not.
            write_facts(folder, {**facts, "status": job_return.status.name.lower(), "seconds": seconds})


def record_folder(config: DictConfig) -> Path:
    """`.hydra` in the job's output folder, also where the application moved or disabled it."""
    subfolder = OmegaConf.select(config, "hydra.output_subdir") or ".hydra"
    return Path(config.hydra.runtime.output_dir) / subfolder


def read_facts(folder: Path) -> dict[str, Any]:
    """What was written when the job started; nothing when that failed."""
    try:
        facts: dict[str, Any] = json.loads((folder / "provenance.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    return facts


def write_facts(folder: Path, facts: dict[str, Any]) -> None:
    write_whole(folder / "provenance.json", json.dumps(facts, indent=2) + "\n")


@contextmanager
def failure_noted(folder: Path) -> Iterator[None]:
    """Say in the log and in the folder that the snapshot failed; Hydra itself only warns."""
    try:
        yield
    except Exception as error:
        log.error("The config snapshot in %s failed: %s: %s", folder, type(error).__name__, error)
        with suppress(OSError):  # the folder itself may be what failed
            write_whole(folder / "resolved.FAILED", traceback.format_exc())
        raise
