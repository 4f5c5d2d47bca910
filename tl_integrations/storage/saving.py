"""`save`: a recording or trace that is in memory, or came from elsewhere, as a bundle of its own."""

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Literal

from tl_integrations.capture.events import Record
from tl_integrations.capture.graph import Trace
from tl_integrations.capture.protocols import CapturedStep, SinkContext
from tl_integrations.capture.recording import Recording
from tl_integrations.storage.torchlens_writer import write_fastlog
from tl_integrations.storage.writer import TlspecSink

Format = Literal["tlspec", "torchlens"]


def save(obj: Recording | Trace, path: str | os.PathLike[str], format: Format = "tlspec") -> Path:
    """Write a recording, or a trace with its graph, as a bundle.

    Args:
        obj: What `record`, `trace` or `load` gave.
        path: Of a bundle that does not exist yet.
        format: `"tlspec"`, or `"torchlens"` for a bundle that `torchlens.fastlog.load` opens; that one
            holds the records without gradients, statistics and config.
    Returns: the path.
    Raises:
        BundleExistsError: if the path is taken.
        UnsupportedTensorError: for a tensor that cannot be stored.
        ValueError: for another format.
    """
    if format == "torchlens":
        records = list(obj) if isinstance(obj, Recording) else list(obj.captured().records)
        write_fastlog(Path(path), records)
    elif format == "tlspec":
        _save_tlspec(obj, path)
    else:
        raise ValueError(f"format={format!r} is unknown; choose 'tlspec' or 'torchlens'.")
    return Path(path)


def _save_tlspec(obj: Recording | Trace, path: str | os.PathLike[str]) -> None:
    config = obj.config if isinstance(obj, Recording) else None
    kind: Literal["recording", "trace"] = "recording" if isinstance(obj, Recording) else "trace"
    sink = TlspecSink(path, context=SinkContext(config=config), kind=kind)
    with sink:
        for captured in _steps(obj) if isinstance(obj, Recording) else [obj.captured()]:
            sink.write(captured)
        sink.close(obj.outcome)


def _steps(recording: Recording) -> Iterator[CapturedStep]:
    """The recording's runs, each with its graph where there is one."""

    def run(record: Record) -> tuple[object, int]:
        return record.moment, record.run_index

    graphs = recording.graphs
    for (_, index), records in groupby(recording, key=run):
        kept = list(records)
        yield CapturedStep(moment=kept[0].moment, records=kept, graph=graphs.get((kept[0].moment, index)))
