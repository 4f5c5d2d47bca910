"""The function mode that hands every torch function to a handler."""

from collections.abc import Callable
from types import MethodType
from typing import Any

from torch.overrides import TorchFunctionMode

Handler = Callable[..., Any]
"""`handler(mode, func, types, args, kwargs)` runs the function and returns what it returned; `types` is None
where torch's Python function called it by the shorter way."""


class WatchingMode(TorchFunctionMode):
    """A mode whose handler is a closure: look-ups on `self` would cost as much as the rest of it."""

    def __init__(self, handler: Handler) -> None:
        self.handler = handler
        self.__torch_function__ = MethodType(handler, self)  # type: ignore[method-assign]
