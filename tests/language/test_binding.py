"""Binding complains in Python's own words."""

import functools
import itertools
from typing import Any

import configurables as c
import pytest

from tl_integrations import language as L
from tl_integrations.language.binding import bind
from tl_integrations.language.targets import target_of


def one(a: Any) -> None: ...
def two(a: Any, b: Any = 1) -> None: ...
def keyword(a: Any, *, k: Any, m: Any = 1, n: Any) -> None: ...
def only(a: Any, b: Any, /, c: Any, d: Any = 0) -> None: ...
def none() -> None: ...
def loose(a: Any, **rest: Any) -> None: ...
def three(x: Any, y: Any, z: Any) -> None: ...


class Made:
    def __init__(self, a: Any, b: Any = 1, *, k: Any = 2) -> None: ...


class New:
    def __new__(cls, a: Any) -> "New":
        return super().__new__(cls)


NAMES = ("a", "b", "c", "k", "n", "x", "zzz")


@pytest.mark.parametrize(
    "target", [one, two, keyword, only, none, loose, three, Made, New], ids=lambda t: t.__name__
)
def test_every_wrong_call_gets_pythons_message(target: Any) -> None:
    checked = 0
    for count in range(5):
        for size in range(4):
            for names in itertools.combinations(NAMES, size):
                args, kwargs = (0,) * count, dict.fromkeys(names, 0)
                expected = message(functools.partial(target, *args, **kwargs))
                assert message(functools.partial(bind, target_of(target).plan, args, kwargs)) == expected
                checked += expected is not None
    assert checked > 100


def message(call: Any) -> str | None:
    try:
        call()
    except TypeError as error:
        text = str(error).partition(". Did you mean")[0]
        return text.rpartition(".<locals>.")[2]
    return None


def test_the_complaint_comes_at_the_call_site_of_the_trace() -> None:
    with pytest.raises(TypeError, match=r"build\(\) missing 1 required positional argument: 'out_features'"):
        L.trace(lambda: c.build(1))  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"build\(\) got an unexpected keyword argument 'bias'"):
        L.trace(lambda: c.build(1, 2, bias=True))  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"Encoder.__init__\(\) missing 1 required positional argument: 'width'"
    ):
        L.trace(lambda: c.Encoder(depth=2))  # type: ignore[call-arg]
    with pytest.raises(
        TypeError, match=r"Encoder.__init__\(\) missing 1 required positional argument: 'width'"
    ):
        L.trace(lambda: c.Encoder())  # type: ignore[call-arg]


def test_reserved_names_are_refused_in_a_trace() -> None:
    assert c.reserved_name(5) == 5
    with pytest.raises(TypeError, match="'_args_' means something else"):
        L.trace(lambda: c.reserved_name(5))
    for name in ("_target_", "_partial_", "_convert_", "_recursive_", "_isolate_", "_execution_whitelist_"):
        with pytest.raises(TypeError, match="means something else"):
            L.trace(lambda name=name: c.loose(1, **{name: 1}))


def test_callables_without_a_signature_take_keywords_or_keep_positions() -> None:
    assert L.instantiate(L.trace(lambda: L.call(range)(1, 5, 2)), allow="builtins.range") == range(1, 5, 2)
    assert L.instantiate(L.trace(lambda: L.call(dict)(a=1))) == {"a": 1}
    with pytest.raises(TypeError, match="keyword"):
        bind(target_of(range).plan, (1,), {})
