"""The scalars or the histograms of a step in one event of a TensorBoard file.

Torch's writer makes an event of each value and hands it to its thread. That takes 0.1 ms however small the
value is, many times what computing it takes. TensorBoard reads both alike.
"""

import sys
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tensorboard.compat.proto.summary_pb2 import Summary

from tl_integrations.capture.events import Histogram


@runtime_checkable
class StepWriter(Protocol):
    """What takes scalars and histograms."""

    def add_scalar(self, tag: str, scalar_value: float, global_step: int) -> None: ...

    def add_histogram_raw(
        self,
        tag: str,
        min: float,
        max: float,
        num: int,
        sum: float,
        sum_squares: float,
        bucket_limits: Sequence[float],
        bucket_counts: Sequence[int],
        global_step: int,
    ) -> None: ...


def write_scalars(writer: StepWriter, values: Mapping[str, float], step: int) -> None:
    """Write scalars by tag; one by one where the writer is not torch's own."""
    if bundles(writer, "add_scalar"):
        _write(writer, {name: {"simple_value": value} for name, value in values.items()}, step)
        return
    for name, value in values.items():
        writer.add_scalar(name, value, step)


def write_histograms(writer: StepWriter, histograms: Mapping[str, Histogram], step: int) -> None:
    """Write histograms by tag, one by one where the writer is not torch's own.

    Args:
        writer: Stays open.
        histograms: Each with at least one value.
        step: The x-axis.
    """
    if not bundles(writer, "add_histogram_raw"):
        for name, histogram in histograms.items():
            limits, counts = _buckets(histogram)
            writer.add_histogram_raw(
                name, **_moments(histogram), bucket_limits=limits, bucket_counts=counts, global_step=step
            )
        return
    found = {}
    for name, histogram in histograms.items():
        limits, counts = _buckets(histogram)
        found[name] = {"histo": {**_moments(histogram), "bucket_limit": limits, "bucket": counts}}
    _write(writer, found, step)


def bundles(writer: object, method: str) -> bool:
    """Whether a writer is torch's with its own method, so that several values can go in one event."""
    found = getattr(type(writer), method, None)
    return getattr(found, "__module__", "") == "torch.utils.tensorboard.writer"


def _write(writer: Any, values: Mapping[str, Mapping[str, Any]], step: int) -> None:
    if values:
        made = [Summary.Value(tag=name, **value) for name, value in values.items()]
        writer._get_file_writer().add_summary(Summary(value=made), step)


def _buckets(histogram: Histogram) -> tuple[list[float], list[int]]:
    """Right edges and counts from the first to the last bucket that has values, empty neighbours as one.

    The checksum of an event file is worked out byte by byte in Python, so each bucket counts.
    """
    counts = histogram.counts
    first = next(place for place, count in enumerate(counts) if count)
    last = next(place for place in range(len(counts), 0, -1) if counts[place - 1])
    kept = [place for place in range(first, last) if counts[place] or counts[place + 1]]
    return [histogram.edges[place + 1] for place in kept], [counts[place] for place in kept]


def _moments(histogram: Histogram) -> dict[str, Any]:
    return {
        "min": _bounded(histogram.minimum),
        "max": _bounded(histogram.maximum),
        "num": histogram.num,
        "sum": _bounded(histogram.total),
        "sum_squares": _bounded(histogram.squares),
    }


def _bounded(value: float) -> float:
    """Sums of squares of large values overflow, and a board shows nothing beside an infinity."""
    largest = sys.float_info.max
    return min(max(value, -largest), largest) if value == value else 0.0
