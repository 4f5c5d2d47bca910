"""What a run writes, known in advance, so that a reader's answer can be compared bit for bit."""

import random
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from unittest.mock import patch

import torch
from bundles import record
from torch import Tensor

from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.capture.recording import Recording
from tl_integrations.storage import shard_file

DTYPES = (torch.float32, torch.bfloat16, torch.int64, torch.complex64, torch.uint8)


@contextmanager
def small_pieces() -> Iterator[None]:
    """The run's tensors are small: cut them, so that each is written in several calls as large ones are."""
    with patch.object(shard_file, "_PIECE", 256):
        yield


def tensor_of(step: int, position: int, size: int = 40) -> Tensor:
    """The tensor at a place of the run; different everywhere."""
    chance = torch.Generator().manual_seed(step * 1009 + position)
    dtype = DTYPES[position % len(DTYPES)]
    count = 1 + (step * 7 + position * 13) % size
    return torch.randint(-100, 100, (count, 3), generator=chance).to(dtype)


def captured(step: int, records: int = 2, size: int = 40, generation: int = 0) -> CapturedStep:
    """A step of the run: tensors, statistics, and a gradient on its first record."""
    moment = Moment(step=step, generation=generation)
    return CapturedStep(moment=moment, records=[_record(step, p, size, moment) for p in range(records)])


def _record(step: int, position: int, size: int, moment: Moment) -> Record:
    return record(
        tensor_of(step, position, size),
        f"relu_{position}_{position}",
        moment=moment,
        statistics={"mean": float(step), "std": float(position)},
        grad=tensor_of(step, 50 + position, size) if position == 0 else None,
    )


def check(recording: Recording, committed: Iterable[int], records: int = 2, size: int = 40) -> int:
    """Compare a recording with the run: every committed step whole, nothing wrong, nothing twice.

    Returns: how many records were compared.
    """
    seen: dict[int, list[Record]] = {}
    for found in recording:
        assert found.step is not None
        seen.setdefault(found.step, []).append(found)
    lost = set(committed) - seen.keys()
    assert not lost, f"committed and lost: {sorted(lost)}"
    for step, found_records in seen.items():
        assert [r.label for r in found_records] == [f"relu_{p}_{p}" for p in range(records)], step
        for position, found in enumerate(found_records):
            assert same(found.out, tensor_of(step, position, size)), (step, position)
            assert found.statistics == {"mean": float(step), "std": float(position)}
        gradient = found_records[0].grad
        assert gradient is not None and same(gradient, tensor_of(step, 50, size)), step
    return len(recording)


def same(left: Tensor, right: Tensor) -> bool:
    """Equal in dtype, shape and every bit."""
    if left.dtype is not right.dtype or left.shape != right.shape:
        return False
    if left.numel() == 0:
        return True
    bits = [t.contiguous().reshape(-1).view(torch.uint8) for t in (left, right)]
    return torch.equal(*bits)


def seeded(seed: int) -> random.Random:
    return random.Random(seed)
