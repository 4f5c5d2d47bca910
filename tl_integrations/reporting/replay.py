"""A bundle that was captured without a logger, written to TensorBoard after the fact."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from tl_integrations.capture.protocols import CapturedStep
from tl_integrations.capture.recording import Recording
from tl_integrations.capture.statistics import DEFAULT
from tl_integrations.errors import BundleExistsError
from tl_integrations.options import ReportOptions, SummaryOptions
from tl_integrations.reporting.board import TensorBoardSink
from tl_integrations.reporting.comparison import Comparison
from tl_integrations.reporting.measuring import measured
from tl_integrations.reporting.summaries import captured_steps
from tl_integrations.reporting.tensorboard import Writer, write_text
from tl_integrations.reporting.texts import config_text

Track = Callable[[Sequence[CapturedStep]], Iterable[CapturedStep]]


def write_events(
    recording: Recording,
    folder: Path,
    *,
    histograms: int = 64,
    report: ReportOptions | None = None,
    track: Track = iter,
) -> int:
    """Write what a recording holds as event files.

    Args:
        recording: All of a run, or a part of it.
        folder: Where the files go; made when it is not there.
        histograms: Bins of a histogram per layer; 0 makes none.
        report: Prefix, grouping, budget, pictures; with heat maps when not given.
        track: Passes on the steps; a progress bar goes here.

    Returns: How many captured steps were written.

    Raises:
        BundleExistsError: if the folder holds event files, which a board would mix with these.
    """
    with new_writer(folder) as writer:
        return replay(recording, writer, histograms, report or ReportOptions(heat_map=True), track)


def write_comparison(comparison: Comparison, folder: Path) -> None:
    """Write the pictures of a comparison as event files.

    Args:
        comparison: What `tl.compare` gave.
        folder: Where TensorBoard is to look; it is made.
    Raises:
        BundleExistsError: if the folder holds event files.
    """
    with new_writer(folder) as writer:
        comparison.to_tensorboard(writer)


@contextmanager
def new_writer(folder: Path) -> Iterator[Writer]:
    """A writer in a folder without events, closed at the end."""
    # Two thirds of a second that only this needs.
    from torch.utils.tensorboard import SummaryWriter

    if folder.is_dir() and any(folder.glob("events.out.tfevents.*")):
        raise BundleExistsError(
            f"{folder} holds event files already, and TensorBoard would mix them with new ones. "
            "Name another folder, or remove it."
        )
    with SummaryWriter(folder) as writer:
        yield writer


def replay(
    recording: Recording, writer: Writer, histograms: int, report: ReportOptions, track: Track = iter
) -> int:
    """Write what a recording holds to a writer; returns how many steps."""
    if recording.config is not None:
        write_text(writer, f"{report.prefix}config", config_text(recording.config))
    sink = TensorBoardSink(writer, histograms, report=report)
    steps = captured_steps(recording)
    for captured in track(steps):
        records = measured(captured.records, SummaryOptions(statistics=DEFAULT, histogram_bins=histograms))
        sink.write(replace(captured, records=records))
    sink.close()
    return len(steps)
