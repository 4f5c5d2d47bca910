"""Keep records beyond the step."""

from tl_integrations.storage.factory import to_disk
from tl_integrations.storage.reader import load
from tl_integrations.storage.recovery import recover
from tl_integrations.storage.runs import load_runs
from tl_integrations.storage.saving import save
from tl_integrations.storage.writer import TlspecSink

__all__ = ["TlspecSink", "load", "load_runs", "recover", "save", "to_disk"]
