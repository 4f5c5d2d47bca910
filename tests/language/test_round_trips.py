"""Whatever goes in comes out: generated values through trace, YAML text and both engines."""

import math
import pathlib
from typing import Any

import configurables as c
import hypothesis.strategies as st
import plain_builders as plain
import torch
import yaml
from hypothesis import HealthCheck, given, settings
from omegaconf import OmegaConf

from tl_integrations import language as L

PROFILE = settings(max_examples=40, deadline=None, suppress_health_check=list(HealthCheck))

texts = st.one_of(
    st.text(),
    st.text("${}?.:#-'\"\\ \n%\t0123456789eE_+", max_size=12),
    st.sampled_from(["???", "${a}", "yes", "1e-3"]),
)
scalars = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), texts, st.binary(max_size=8))
keys = st.one_of(
    texts.filter(lambda text: "." not in text),
    st.integers(),
    st.floats(allow_nan=False),
    st.none(),
    st.booleans(),
)
values = st.recursive(
    st.one_of(
        scalars,
        st.sampled_from([torch.float16, plain.Color.RED, len, ..., pathlib.Path("a/b")]),
        st.complex_numbers(allow_nan=False),
        st.dates(),
        st.decimals(allow_nan=False),
    ),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(keys, inner, max_size=4),
        st.tuples(inner, inner),
        st.builds(plain.Pair, inner, inner),
        st.dictionaries(st.sampled_from(["_target_", "_args_", "a"]), inner, max_size=2),
    ),
    max_leaves=12,
)


def same(a: Any, b: Any) -> bool:
    """Equal in value and type, with NaN equal to itself and -0.0 apart from 0.0."""
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return math.copysign(1, a) == math.copysign(1, b) and (a == b or (a != a and b != b))
    if isinstance(a, dict):
        return list(map(repr, a)) == list(map(repr, b)) and all(
            same(x, y) for x, y in zip(a.values(), b.values(), strict=True)
        )
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(same, a, b))
    return bool(a == b)


@PROFILE
@given(values)
def test_any_value_comes_back_through_text_and_both_engines(value: Any) -> None:
    plain_config = L.trace(lambda: c.same(value), as_dict=True)
    text = L.to_yaml(plain_config)
    assert yaml.safe_load(text) == plain_config or "nan" in text
    assert same(L.instantiate(plain_config), value)
    loaded = OmegaConf.create(text)
    assert not L.diff(loaded, plain_config)
    assert same(L.instantiate(loaded), value)
    assert same(L.instantiate(loaded, engine="hydra"), value)


@PROFILE
@given(values)
def test_a_live_object_tells_what_a_trace_of_it_says(value: Any) -> None:
    try:
        live = L.config_of(c.Box(value), as_dict=True)
    except LookupError as error:
        assert "larger than" in str(error)
        return
    assert not L.diff(live, L.trace(lambda: c.Box(value), as_dict=True))


@PROFILE
@given(texts)
def test_any_text_is_quoted_so_that_every_loader_reads_it(text: str) -> None:
    config = {"k": text, text: 1} if text else {"k": text}
    for loaded in (
        yaml.safe_load(L.to_yaml(config)),
        OmegaConf.to_container(OmegaConf.create(L.to_yaml(config)), resolve=False),
    ):
        assert loaded == config


shapes = st.recursive(
    st.builds(lambda w: ("enc", w), st.integers(1, 4)),
    lambda inner: st.builds(
        lambda e, h, b: ("model", e, h, b), inner, inner | st.none(), st.lists(inner, max_size=3)
    ),
    max_leaves=6,
)


def built(shape: Any, seen: dict[Any, Any]) -> Any:
    """A tree of builders in which equal parts are one object."""
    if shape is None:
        return None
    if shape not in seen:
        seen[shape] = (
            c.Encoder(shape[1])
            if shape[0] == "enc"
            else c.Model(built(shape[1], seen), built(shape[2], seen), [built(one, seen) for one in shape[3]])
        )
    return seen[shape]


def frozen(shape: Any) -> Any:
    return tuple(map(frozen, shape)) if isinstance(shape, list | tuple) else shape


@settings(PROFILE, max_examples=25)
@given(shapes.map(frozen))
def test_building_a_trace_is_like_running_the_code_also_where_objects_are_shared(shape: Any) -> None:
    config = L.trace(lambda: built(shape, {}))
    by_code, by_config = built(shape, {}), L.instantiate(config)
    assert repr(by_code) == repr(by_config)
    assert {n: v.shape for n, v in by_code.state_dict().items()} == {
        n: v.shape for n, v in by_config.state_dict().items()
    }
    assert len(list(by_code.modules())) == len(list(by_config.modules()))
    assert L.config_of(by_code) == L.config_of(by_config) == config
    parts = by_config.encoder if shape[0] == "model" else by_config
    assert L.config_of(L.instantiate(L.config_of(parts))) == L.config_of(parts)
