"""Keep records beyond the step."""

from tl_integrations.storage.factory import to_disk
from tl_integrations.storage.reader import load
from tl_integrations.storage.writer import TlspecSink

__all__ = ["TlspecSink", "load", "to_disk"]
