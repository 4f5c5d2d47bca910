"""`to_disk`: where and how a bundle will be written, before there is one."""

import os
from typing import Literal

import torch

from tl_integrations.capture.protocols import SinkContext, SinkNeeds
from tl_integrations.storage.filesystem import DISK, Disk
from tl_integrations.storage.opening import bundle_path, decide
from tl_integrations.storage.options import WriteOptions
from tl_integrations.storage.plain_yaml import write_config
from tl_integrations.storage.provenance import IDENTITY, Identity
from tl_integrations.storage.writer import TlspecSink, needs_of


class DiskFactory:
    """What `to_disk` returns: makes a `TlspecSink` when the first capture is due."""

    def __init__(
        self,
        path: str | os.PathLike[str],
        options: WriteOptions,
        identity: Identity = IDENTITY,
        disk: Disk = DISK,
    ) -> None:
        self.path: str = os.fspath(path)
        self.options: WriteOptions = options
        self._identity, self._disk = identity, disk

    @property
    def needs(self) -> SinkNeeds:
        return needs_of(self.options)

    def check(self, context: SinkContext = SinkContext()) -> None:
        """Raise what `open` would raise for the path and the config; nothing is created."""
        if context.config is not None:
            write_config(context.config)
        decide(bundle_path(self.path, context), self.options, context, self._disk)

    def open(self, context: SinkContext = SinkContext()) -> TlspecSink:
        return TlspecSink(
            self.path, context=context, options=self.options, identity=self._identity, disk=self._disk
        )

    def __repr__(self) -> str:
        return f"to_disk({self.path!r})"


def to_disk(
    path: str | os.PathLike[str],
    *,
    tensors: bool = True,
    dtype: torch.dtype | None = None,
    samples: int | None = None,
    overwrite: bool = False,
    resume: bool = False,
    commit: Literal["step"] | int = "step",
    durability: Literal["process", "power"] = "process",
    on_full: Literal["block", "drop_newest"] = "block",
    max_pending_bytes: int = 256 << 20,
    shard_bytes: int = 256 << 20,
    max_bytes: int | None = None,
) -> DiskFactory:
    """Keep what is captured in a `.tlspec` bundle.

    What a record of one tensor of n elements, float32, with 5 statistics costs on disk:

    | option | bytes per record | what is lost |
    |---|---|---|
    | default | 4 n + about 800 | nothing |
    | `dtype=torch.bfloat16` | 2 n + about 850 | precision; `record.dtype` still says what was computed |
    | `samples=8` | 4 n * 8 / batch + about 850 | the batch after 8; `record.shape` is the whole |
    | `tensors=False` | about 650 | the tensors; `.out` raises, statistics and histograms stay |

    Args:
        path: Of a bundle that does not exist yet; a relative one lies under Hydra's output folder while a
            job runs a callback, else under the working directory.
        tensors: False keeps statistics and metadata only.
        dtype: Cast floating-point tensors to this one before they are stored.
        samples: Store only so many entries along the first dimension.
        overwrite: Replace a bundle at the path; the old one stays (`.bak`) until the new one is finished.
        resume: Go on with the bundle at the path, also after a crash: the torn end is cut off, numbering
            goes on, and steps that run again supersede the earlier ones.
        commit: Captured steps per commit; `"step"` commits each.
        durability: What a commit survives: `"process"` the death of the process; `"power"` that of the
            machine, for a sync of shard and index per commit.
        on_full: While `max_pending_bytes` wait for the disk: `"block"` the caller, or `"drop_newest"`,
            counted in the manifest.
        max_pending_bytes: Bytes in memory that may wait for the disk; one larger step goes alone.
        shard_bytes: A shard file ends at this size, or at 16,384 records.
        max_bytes: Refuse steps beyond this many bytes of tensors.
    Returns: a factory for `storage=`; its `check` probes the path without creating anything.
    Raises: ValueError for options that are out of range or exclude each other.
    """
    options = WriteOptions(
        tensors=tensors,
        dtype=dtype,
        samples=samples,
        overwrite=overwrite,
        resume=resume,
        commit=commit,
        durability=durability,
        on_full=on_full,
        max_pending_bytes=max_pending_bytes,
        shard_bytes=shard_bytes,
        max_bytes=max_bytes,
    )
    return DiskFactory(path, options)
