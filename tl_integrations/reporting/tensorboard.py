"""Calls of a TensorBoard writer beside scalars and histograms: texts, pictures, the layout of charts.

Any object with the methods of torch's `SummaryWriter` is a writer; what it cannot show is left out.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from tl_integrations.options import ReportOptions
from tl_integrations.reporting.heatmap import Image
from tl_integrations.reporting.step_event import StepWriter


@runtime_checkable
class TextWriter(Protocol):
    """What takes texts."""

    def add_text(self, tag: str, text_string: str, global_step: int) -> None: ...


@runtime_checkable
class ImageWriter(Protocol):
    """What takes pictures."""

    def add_image(self, tag: str, img_tensor: Image, global_step: int, *, dataformats: str) -> None: ...


@runtime_checkable
class LayoutWriter(Protocol):
    """What takes a layout of charts."""

    def add_custom_scalars(self, layout: Mapping[str, Any]) -> None: ...


@runtime_checkable
class Writer(TextWriter, StepWriter, Protocol):
    """What is used of a `SummaryWriter`."""

    def flush(self) -> None: ...


def write_text(writer: object, name: str, text: str, step: int = 0) -> None:
    """Write a text where the writer takes texts; nothing happens where it does not."""
    if isinstance(writer, TextWriter):
        writer.add_text(name, text, step)


def write_image(writer: object, name: str, image: Image, step: int) -> None:
    """Write a picture where the writer takes pictures; nothing happens where it does not."""
    if isinstance(writer, ImageWriter):
        writer.add_image(name, image, step, dataformats="HWC")


def write_layout(writer: object, statistics: Sequence[str], report: ReportOptions) -> None:
    """Put all layers of a statistic into one chart of the custom scalars page, a chart per statistic."""
    if isinstance(writer, LayoutWriter):
        charts = {name: ["Multiline", [_pattern(name, report)]] for name in statistics}
        writer.add_custom_scalars({f"{report.prefix}activations": charts})


def _pattern(statistic: str, report: ReportOptions) -> str:
    """A regular expression that finds the tags of one statistic."""
    prefix = re.escape(report.prefix)
    by_layer = report.group_by == "layer"
    return f"^{prefix}.+/act_{statistic}$" if by_layer else f"^{prefix}act_{statistic}/"
