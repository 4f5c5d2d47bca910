"""Turn records into something to look at."""

from tl_integrations.reporting.board import TensorBoardSink
from tl_integrations.reporting.comparing import compare
from tl_integrations.reporting.loggers import LoggerSink

__all__ = ["LoggerSink", "TensorBoardSink", "compare"]
