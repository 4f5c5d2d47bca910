"""Builders of the public cases."""

from typing import Any

from tl_integrations import language as L


@L.configurable
def betas_type(betas: Any) -> str:
    return type(betas).__name__


@L.configurable
def lr(lr: Any) -> Any:
    return lr


class A:
    @L.configurable
    class B:
        def __init__(self, d: int) -> None:
            self.d = d

    @classmethod
    @L.configurable
    def make(cls, d: int) -> tuple[str, int]:
        return cls.__name__, d


@L.configurable
def named(target: Any, args: Any, strict: Any, thunk: Any, config: Any) -> Any:
    return target, args, strict, thunk, config


@L.configurable
def reserved(_args_: Any = 1) -> Any:
    return _args_


@L.configurable
def takes_class(cls: Any) -> Any:
    return cls


@L.configurable
def with_object(a: Any, obj: Any = None) -> Any:
    return a, obj


@L.configurable(defaults="include")
def always_full(a: int, b: int = 2) -> Any:
    return a, b
