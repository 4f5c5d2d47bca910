"""How a bundle is written: what `to_disk` takes."""

from dataclasses import dataclass
from typing import Literal

import torch

from tl_integrations.storage.tensors import CARRIERS


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """What is kept, how safely, and what happens when the disk cannot follow."""

    tensors: bool = True
    """False: statistics and metadata only."""
    dtype: torch.dtype | None = None
    """Floating-point tensors are cast to this before they are stored."""
    samples: int | None = None
    """Only so many entries along the first dimension are stored."""
    overwrite: bool = False
    """Replace a bundle at the path; the old one is kept beside it until the new one is finished."""
    resume: bool = False
    """Go on with the bundle at the path, also one whose writer was killed."""
    commit: Literal["step"] | int = "step"
    """Captured steps per commit: `"step"` is 1."""
    durability: Literal["process", "power"] = "process"
    """What a commit survives: the death of the process, or of the machine (a sync per commit)."""
    on_full: Literal["block", "drop_newest"] = "block"
    """When the queue is full: wait for the disk, or leave out the step and count it."""
    max_pending_bytes: int = 256 << 20
    """Bytes of tensors that may wait for the disk, in 1,024 steps at most; one larger step goes alone."""
    shard_bytes: int = 256 << 20
    """A shard ends when it holds this much."""
    max_bytes: int | None = None
    """Refuse steps beyond this many bytes of tensors in all."""

    def __post_init__(self) -> None:
        if self.overwrite and self.resume:
            raise ValueError(
                "overwrite=True and resume=True exclude each other: replace the bundle or go on with it."
            )
        if self.dtype is not None and not (self.dtype in CARRIERS and self.dtype.is_floating_point):
            raise ValueError(f"dtype={self.dtype} is not a floating-point dtype that a bundle can hold.")
        for name in ("samples", "max_pending_bytes", "shard_bytes", "max_bytes"):
            _check_positive(name, getattr(self, name))
        if self.commit != "step":
            _check_positive("commit", self.commit)
        _check_choice("durability", self.durability, ("process", "power"))
        _check_choice("on_full", self.on_full, ("block", "drop_newest"))

    @property
    def steps_per_commit(self) -> int:
        return 1 if self.commit == "step" else self.commit


def _check_positive(name: str, value: object) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise ValueError(f"{name}={value!r} is not a whole number of at least 1.")


def _check_choice(name: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"{name}={value!r} is unknown; choose one of {', '.join(map(repr, choices))}.")
