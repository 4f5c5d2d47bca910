"""Lightning adapters over the monitor and the config language."""

from tl_integrations.callbacks.config import ConfigCallback
from tl_integrations.callbacks.trace import TraceCallback

__all__ = ["ConfigCallback", "TraceCallback"]
