"""Snapshot callbacks that fail, as a full disk would make them."""

from typing import Any

from tl_integrations.launch.hydra_callback import SnapshotCallback


class AtStart(SnapshotCallback):
    def on_job_start(self, config: Any, **kwargs: Any) -> None:
        raise OSError("the disk is full at the start")


class AtEnd(SnapshotCallback):
    def on_job_end(self, config: Any, **kwargs: Any) -> None:
        raise OSError("the disk is full at the end")
