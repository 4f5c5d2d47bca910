"""Records with what is to be stored of them, in columns."""

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

from tl_integrations.capture.events import Payload, Record
from tl_integrations.storage.tensors import all_storable, refusal, to_host, unstorable


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Some consecutive records of a step; the columns are of one length."""

    records: Sequence[Record]
    tensors: Sequence[Tensor | None]
    """On the CPU; None where no tensor is stored."""
    gradients: Sequence[Tensor | None]
    """Likewise."""
    sizes: Sequence[int]
    """Bytes of each record's tensor and gradient."""

    def __len__(self) -> int:
        return len(self.records)

    def cut(self, start: int, stop: int) -> "Chunk":
        """The records from `start` up to `stop`."""
        if start == 0 and stop >= len(self.records):
            return self
        return Chunk(
            records=self.records[start:stop],
            tensors=self.tensors[start:stop],
            gradients=self.gradients[start:stop],
            sizes=self.sizes[start:stop],
        )


def chunk_of(records: Sequence[Record]) -> Chunk:
    """Records with their tensors and gradients on the host; several GPU tensors cross together.

    Raises:
        UnsupportedTensorError: for a tensor that cannot be stored.
        PayloadOverwrittenError: for one whose memory was overwritten.
    """
    nothing: list[Tensor | None] = [None] * len(records)
    graded = any([record.gradient is not None for record in records])
    read = _read([record.payload for record in records], records, "")
    if graded:
        payloads = [None if record.gradient is None else record.gradient.payload for record in records]
        read += _read(payloads, records, "gradient of ")
    # Together, so that there is one wait for the GPU.
    host = to_host(read)
    tensors, gradients = host[: len(records)], host[len(records) :] if graded else nothing
    sizes = [0 if tensor is None else tensor.nbytes for tensor in tensors]
    if graded:
        sizes = [size if grad is None else size + grad.nbytes for size, grad in zip(sizes, gradients)]
    return Chunk(records=records, tensors=tensors, gradients=gradients, sizes=sizes)


def bare_chunk(records: Sequence[Record]) -> Chunk:
    """Records without their tensors."""
    nothing = [None] * len(records)
    return Chunk(records=records, tensors=nothing, gradients=nothing, sizes=[0] * len(records))


def _read(payloads: Sequence[Payload | None], records: Sequence[Record], which: str) -> list[Tensor | None]:
    tensors = [None if payload is None else payload.read() for payload in payloads]
    if not all_storable([tensor for tensor in tensors if tensor is not None]):
        for record, tensor in zip(records, tensors):
            if tensor is not None and (reason := unstorable(tensor)):
                raise refusal(f"{which}{record.name}", reason)
    return tensors
