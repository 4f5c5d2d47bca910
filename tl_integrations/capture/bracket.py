"""Bracket: stands in for one method of a module while a capture is due."""

import copy
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, Protocol

from torch import nn

_ABSENT = object()


class Around(Protocol):
    """What a bracket does in the place of a call."""

    def __call__(self, call: int, method: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        """Run the method, with whatever is to happen around it, and return what it returned.

        Args:
            call: Which call of the bracket, counted from 0.
            method: The bracketed method with the arguments of this call.
            args: Its positional arguments.
        """
        ...


def inside(context: Callable[[], AbstractContextManager[Any]]) -> Around:
    """Around every call, a context of its own."""

    def around(call: int, method: Callable[[], Any], args: tuple[Any, ...]) -> Any:
        with context():
            return method()

    return around


class Bracket:
    """Runs something around a method, as an attribute of that one instance.

    Every strategy, closure and redirection of Lightning looks the method up on the instance, so this is
    the one place that sees each forward of a batch. A module that is copied or pickled while the bracket
    stands gets its own plain method.

    Args:
        module: The module whose method is bracketed.
        name: The method, such as `training_step`.
        around: What happens around each call.
    """

    def __init__(self, module: nn.Module, name: str, around: Around) -> None:
        self._module = module
        self._name = name
        self._around = around
        self._previous = module.__dict__.get(name, _ABSENT)
        self._original = getattr(module, name)
        # Lightning reads the signature through one level of __wrapped__ to decide which arguments to pass.
        self.__wrapped__: Any = getattr(self._original, "__wrapped__", self._original)
        self.calls: int = 0
        module.__dict__[name] = self

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = self.calls
        self.calls += 1
        return self._around(call, lambda: self._original(*args, **kwargs), args)

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
