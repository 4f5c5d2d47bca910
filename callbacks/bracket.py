"""Bracket: stands in for one method of a LightningModule while a capture is due."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from torch import nn

_ABSENT = object()


class Bracket:
    """Runs a method inside a context, as an attribute of that one instance.

    Every strategy, closure and redirection of Lightning looks the method up on the instance, so this is
    the one place that sees each forward of a batch. A module that is copied or pickled while the bracket
    stands gets its own plain method.

    Args:
        module: The module whose method is bracketed.
        name: The method, such as `training_step`.
        around: Gives the context of the k-th call, counted from 0.
    """

    def __init__(
        self, module: nn.Module, name: str, around: Callable[[int], AbstractContextManager[Any]]
    ) -> None:
        self._module = module
        self._name = name
        self._around = around
        self._previous = module.__dict__.get(name, _ABSENT)
        self._original = getattr(module, name)
        # Lightning reads the signature through one level of __wrapped__ to decide which arguments to pass.
        self.__wrapped__ = getattr(self._original, "__wrapped__", self._original)
        self.calls = 0
        module.__dict__[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self.calls
        self.calls += 1
        with self._around(call):
            return self._original(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        # What asks for the method's name, signature or compiled form is answered by the method.
        if name == "_original":
            raise AttributeError(name)
        return getattr(self._original, name)

    def remove(self) -> None:
        """Put back what stood there; a second call does nothing."""
        if self._module.__dict__.get(self._name) is not self:
            return
        if self._previous is _ABSENT:
            del self._module.__dict__[self._name]
        else:
            self._module.__dict__[self._name] = self._previous

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        module = memo.get(id(self._module), self._module)
        if self._previous is not _ABSENT:
            return copy.deepcopy(self._previous, memo)
        return getattr(type(module), self._name).__get__(module)

    def __reduce__(self) -> tuple[Any, ...]:
        return getattr, (self._module, self._name)
