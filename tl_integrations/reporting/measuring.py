"""Statistics of records after the fact, from the tensors that they kept."""

from collections.abc import Sequence
from dataclasses import replace

from tl_integrations.capture.events import Record
from tl_integrations.capture.statistics import Summariser, collect
from tl_integrations.options import SummaryOptions
from tl_integrations.reporting.units import dead_fraction


def measured(
    records: Sequence[Record], options: SummaryOptions, *, only_missing: bool = False
) -> list[Record]:
    """The records with statistics: of their tensors where these were kept, else those that they carry.

    Args:
        records: Of one step; their tensors are read, used and forgotten.
        options: What to compute.
        only_missing: Leave records alone that carry statistics; nothing is read for them.
    """
    summariser = Summariser(options)
    kept = [
        record
        for record in records
        if record.payload is not None and not (only_missing and record.statistics is not None)
    ]
    found: dict[int, Record] = {}
    for record in kept:
        tensor = record.out
        (numbers,) = collect([summariser.measure(tensor)])
        if numbers is not None:
            statistics, histogram = numbers
            found[id(record)] = replace(
                record, statistics=statistics | dead_fraction(tensor), histogram=histogram
            )
    return [found.get(id(record), record) for record in records]
