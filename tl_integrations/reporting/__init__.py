"""Turn records into something to look at."""

from tl_integrations.reporting.loggers import LoggerSink
from tl_integrations.reporting.tensorboard import TensorBoardSink

__all__ = ["LoggerSink", "TensorBoardSink"]
