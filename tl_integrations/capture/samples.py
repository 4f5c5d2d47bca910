"""Which samples a captured batch held, as a record beside the others of its forward."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tl_integrations.capture.events import Moment, Record
from tl_integrations.capture.payloads import KeptTensor
from tl_integrations.errors import CaptureError

SampleIds = Tensor | Sequence[int]

SAMPLE_IDS = "sample_ids"
"""Where the record is found: `recording.at(step)["sample_ids"].out`."""


def samples_record(moment: Moment, ids: Any) -> Record:
    """The record of a batch's sample ids, an int64 vector.

    Args:
        moment: The forward that the batch was given to.
        ids: One integer per sample, in the order of the batch.
    Raises:
        CaptureError: if they are no integers.
    """
    numbers = _as_tensor(ids)
    return Record(
        moment=moment,
        kind="input",
        func_name=SAMPLE_IDS,
        address=SAMPLE_IDS,
        io="input",
        layer=SAMPLE_IDS,
        shape=tuple(numbers.shape),
        dtype=numbers.dtype,
        device=str(numbers.device),
        payload=KeptTensor(numbers),
    )


def _as_tensor(ids: Any) -> Tensor:
    try:
        found = torch.as_tensor(ids)
    except (TypeError, ValueError, RuntimeError):
        found = torch.empty(0)
    whole = not found.is_floating_point() and not found.is_complex() and found.dtype is not torch.bool
    if not whole:
        raise CaptureError(
            f"sample_ids are {ids!r:.80}. Give one integer per sample, such as the index in the data set; "
            "a table from texts to integers belongs to the data set."
        )
    return found.detach().to("cpu", torch.int64, copy=True).reshape(-1)
