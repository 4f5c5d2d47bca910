"""What tracing, building and writing a config cost, against fiddle, Hydra and OmegaConf itself."""

import os
from collections.abc import Callable, Mapping
from typing import Any

import config_classes as k
import pytest
import yaml
from hydra.utils import instantiate as hydra_instantiate
from interleaving import assert_ratio, interleave, is_measuring, table
from omegaconf import OmegaConf

from tl_integrations import language as L

NODES = 501


def thunk() -> Any:
    """1 + 50 * (1 + 9) nodes, about 2,000 leaves."""
    blocks = [k.Block(i, [k.Leaf(j, width=64, rate=0.1, name="relu") for j in range(9)]) for i in range(50)]
    return k.Root(blocks)


def small() -> Any:
    return k.Root([k.Block(0, [k.Leaf(0)])])


def compare(
    request: pytest.FixtureRequest,
    title: str,
    base: Callable[[], object],
    other: Callable[[], object],
    inner: int = 1,
) -> Callable[[], float]:
    """A measurement of `other` over `base`; in the suite both run once."""
    rounds = 15 if is_measuring(request) else 2

    def measure() -> float:
        timings = interleave(
            {"base": base, "ours": other}, rounds=rounds, warmup=2 if rounds > 2 else 0, inner=inner
        )
        if is_measuring(request):
            print(f"\n{table(title, timings)}  load {os.getloadavg()[0]:.1f}")
        return timings["ours"].ratio

    return measure


def plain_objects() -> Any:
    """The same tree of undecorated objects, as a yardstick for the machine."""
    blocks = [
        k.PlainBlock(i, [k.PlainLeaf(j, width=64, rate=0.1, name="relu") for j in range(9)])
        for i in range(50)
    ]
    return k.PlainRoot(blocks)


def quietest(
    request: pytest.FixtureRequest, cases: Mapping[str, Callable[[], object]], inner: int
) -> dict[str, float]:
    """Seconds of one call of each case: the least of many short runs, since any load only adds to it."""
    if not is_measuring(request):
        return {name: timing.seconds for name, timing in interleave(cases, rounds=2, warmup=0).items()}
    runs = [interleave(cases, rounds=5, warmup=1, inner=inner) for _ in range(40)]
    return {name: min(run[name].seconds for run in runs) for name in cases}


def test_tracing_to_a_dict_costs_at_most_5_us_per_node(request: pytest.FixtureRequest) -> None:
    cases = {"plain": plain_objects, "trace": lambda: L.trace(thunk, as_dict=True)}
    assert len(str(cases["trace"]()).split("_target_")) == NODES + 1
    least = quietest(request, cases, inner=1)
    if is_measuring(request):
        each, plain = least["trace"] / NODES * 1e6, least["plain"] / NODES * 1e6
        print(f"\n| trace to dict | {each:.2f} us per node | plain objects {plain:.2f} us |")
        assert each <= 5 * 1.1


def test_tracing_to_a_dict_is_5_times_faster_than_fiddle(request: pytest.FixtureRequest) -> None:
    measure = compare(
        request, "fiddle -> trace", k.fiddle_root.as_buildable, lambda: L.trace(thunk, as_dict=True)
    )
    ratio = measure()
    if is_measuring(request):
        assert_ratio(lambda: min(ratio, measure()), 1 / 5)


def test_a_trace_with_a_config_object_costs_one_create(request: pytest.FixtureRequest) -> None:
    plain = L.trace(thunk, as_dict=True)
    measure = compare(request, "create -> trace", lambda: OmegaConf.create(plain), lambda: L.trace(thunk))
    ratio = measure()
    if is_measuring(request):
        assert_ratio(lambda: min(ratio, measure()), 1.1)


def test_building_is_50_times_faster_than_hydra(request: pytest.FixtureRequest) -> None:
    plain = OmegaConf.to_container(L.trace(thunk if is_measuring(request) else small))
    config = OmegaConf.create(plain)
    measure = compare(
        request, "hydra -> fast", lambda: hydra_instantiate(config), lambda: L.instantiate(plain)
    )
    ratio = measure()
    if is_measuring(request):
        assert_ratio(lambda: min(ratio, measure()), 1 / 50)


def test_yaml_is_4_times_faster_and_reloads_identically(request: pytest.FixtureRequest) -> None:
    config = L.trace(thunk if is_measuring(request) else small)
    plain = OmegaConf.to_container(config)
    assert OmegaConf.create(L.to_yaml(plain)) == config
    assert yaml.safe_load(L.to_yaml(plain)) == plain
    measure = compare(
        request, "OmegaConf.to_yaml", lambda: OmegaConf.to_yaml(config), lambda: L.to_yaml(plain)
    )
    ratio = measure()
    if is_measuring(request):
        assert_ratio(lambda: min(ratio, measure()), 1 / 4)


@pytest.mark.parametrize(
    ("name", "plain", "decorated", "limit"),
    [
        ("unrecorded", k.undecorated, k.unrecorded, 0.3e-6),
        (
            "scalar result",
            k.undecorated,
            L.configurable(name="config_classes.undecorated")(k.undecorated),
            3e-6,
        ),
        ("recorded function", k.unbuilt, k.recorded, 3e-6),
        ("recorded class", k.PlainLeaf, k.Leaf, 3e-6),
    ],
)
def test_a_decorated_call_outside_a_trace_costs_little(
    request: pytest.FixtureRequest, name: str, plain: Any, decorated: Any, limit: float
) -> None:
    calls = {"plain": lambda: plain(3, rate=0.1), "decorated": lambda: decorated(3, rate=0.1)}
    least = quietest(request, calls, inner=500)
    extra = least["decorated"] - least["plain"]
    if is_measuring(request):
        print(f"\n| decorated call, {name} | +{extra * 1e6:.3f} us | plain {least['plain'] * 1e6:.3f} us |")
        assert extra <= limit * 1.1
