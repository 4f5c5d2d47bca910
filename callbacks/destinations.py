"""Where a Trainer's captures go: its loggers, a bundle, and further sinks."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

from lightning.pytorch import Trainer

from tl_integrations.callbacks.progress import is_rehearsal
from tl_integrations.capture.protocols import Sink, SinkFactory
from tl_integrations.launch.job import run_folder
from tl_integrations.options import ReportOptions
from tl_integrations.reporting.loggers import LoggerSink
from tl_integrations.storage import to_disk

DEFAULT_BUNDLE = "trace.tlspec"


@dataclass(frozen=True, slots=True, kw_only=True)
class Destinations:
    """What the user asked for, before there is a Trainer."""

    storage: SinkFactory | str | Path | bool | None
    statistics: tuple[str, ...]
    bins: int
    report: ReportOptions
    selector: str
    """The text of what is saved, for warnings."""
    sinks: Sequence[Sink | SinkFactory]
    ranks: frozenset[int] | None
    """Ranks that keep records; None: all."""

    def keeps(self, rank: int) -> bool:
        return self.ranks is None or rank in self.ranks

    def bundle(self, trainer: Trainer) -> SinkFactory | None:
        """The factory of the bundle, on every rank; None where nothing goes to disk."""
        if self.storage is None or self.storage is False:
            return None
        if self.storage is True:
            # A collective: every rank reads it, also those that keep nothing.
            return to_disk(Path(trainer.log_dir or ".") / DEFAULT_BUNDLE)
        return to_disk(self.storage) if isinstance(self.storage, (str, Path)) else self.storage

    def of(self, trainer: Trainer) -> list[Sink | SinkFactory]:
        """The sinks of this rank."""
        bundle = self.bundle(trainer)
        if not self.keeps(trainer.global_rank):
            return []
        found: list[Sink | SinkFactory] = list(self.sinks)
        if trainer.is_global_zero and (self.statistics or self.bins):
            found += [
                LoggerSink(
                    logger,
                    self.statistics,
                    self.bins,
                    report=self.report,
                    selector=self.selector,
                )
                for logger in cast(list[Any], trainer.loggers)
            ]
        return found if bundle is None or is_rehearsal(trainer) else [*found, bundle]


def bundle_path(factory: SinkFactory | None) -> Path | None:
    """Where a factory's bundle lies: a relative path under the folder of a running Hydra job."""
    path = getattr(factory, "path", None)
    return None if path is None else (run_folder() or Path.cwd()) / path
