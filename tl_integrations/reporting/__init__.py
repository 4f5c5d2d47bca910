"""Turn records into something to look at."""

from tl_integrations.reporting.board import TensorBoardSink
from tl_integrations.reporting.checkpoints import read_checkpoint
from tl_integrations.reporting.comparing import compare
from tl_integrations.reporting.loggers import LoggerSink
from tl_integrations.reporting.replay import write_comparison, write_events
from tl_integrations.reporting.terminal import Report, report_of

__all__ = [
    "LoggerSink",
    "Report",
    "TensorBoardSink",
    "compare",
    "read_checkpoint",
    "report_of",
    "write_comparison",
    "write_events",
]
