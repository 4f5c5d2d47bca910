"""What the records of a chunk store, flat and in the order of the file: each tensor, then its gradient."""

from bisect import bisect_left
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from torch import Tensor

from tl_integrations.capture.events import Record
from tl_integrations.storage.sites import Site, Sites
from tl_integrations.storage.tensors import Elements, refusal

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stored:
    """Columns of one length."""

    names: Sequence[int]
    """Twice the record's position in the chunk, and one more for a gradient."""
    sites: Sites
    tensors: Sequence[Tensor]
    """Plain; they hold the memory that `contents` shows."""
    plain: bool
    """Every record has a tensor and none a gradient."""

    @property
    def gradients(self) -> int:
        """How many of the tensors are gradients."""
        return 0 if self.plain else sum([name & 1 for name in self.names])

    def contents(self, records: Sequence[Record]) -> list[Elements]:
        """The bytes of each.

        Args:
            records: Of the chunk.
        Raises:
            UnsupportedTensorError: for a tensor without memory.
        """
        addresses = [tensor.data_ptr() for tensor in self.tensors]
        if not all(addresses):
            self._refuse_lost(records)
        return [kind.from_address(address) for kind, address in zip(self.sites.elements, addresses)]

    def by_record(self, count: int, column: Sequence[T], otherwise: T) -> Sequence[T]:
        """For each record of the chunk what a column says of its tensor."""
        if self.plain:
            return column
        found = dict(zip(self.names, column, strict=True))
        return [found.get(2 * position, otherwise) for position in range(count)]

    def _refuse_lost(self, records: Sequence[Record]) -> None:
        for name, tensor in zip(self.names, self.tensors):
            if tensor.nbytes and not tensor.data_ptr():
                which = "gradient of " if name & 1 else ""
                raise refusal(f"{which}{records[name // 2].name}", "it has elements but no memory")


def stored_of(
    sites: Sites,
    tensors: Sequence[Tensor | None],
    gradients: Sequence[Tensor | None],
    gradient_site: Callable[[Tensor], Site],
) -> Stored:
    """What there is of each record's tensor and gradient."""
    if all([gradient is None for gradient in gradients]):
        kept = [tensor for tensor in tensors if tensor is not None]
        if len(kept) == len(tensors):
            return Stored(names=range(0, 2 * len(kept), 2), sites=sites, tensors=kept, plain=True)
    found: list[tuple[int, Site, Tensor]] = []
    for position, (site, tensor, gradient) in enumerate(zip(sites.each, tensors, gradients, strict=True)):
        if tensor is not None:
            found.append((2 * position, site, tensor))
        if gradient is not None:
            found.append((2 * position + 1, gradient_site(gradient), gradient))
    return Stored(
        names=[name for name, _, _ in found],
        sites=Sites.of(site for _, site, _ in found),
        tensors=[tensor for _, _, tensor in found],
        plain=False,
    )


def records_within(stored: Stored, starts: Sequence[int], shard_bytes: int, most: int) -> int:
    """How many of `most` records a shard takes: up to the one that makes it full.

    Args:
        starts: Where each tensor would begin in the data area, and, as the last, where one more would.
    """
    if starts[-1] < shard_bytes:
        return most
    stops = [start + size for start, size in zip(starts, stored.sites.nbytes)]
    filling = bisect_left(stops, shard_bytes)
    return stored.names[filling] // 2 + 1 if filling < len(stops) else most
