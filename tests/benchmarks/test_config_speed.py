"""What tracing, building and writing a config cost, against fiddle, Hydra and OmegaConf itself."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import config_classes as k
import pytest
import yaml
from hydra.utils import instantiate as hydra_instantiate
from interleaving import assert_ratio, interleave, is_measuring
from omegaconf import OmegaConf
from results import Report, Target

from tl_integrations import language as L

SECTION = "config"
TABLE = "Against what each answers to, ratios to the first of each pair"
ALONE = "One call alone, the quietest of 40 short runs"
NODES = 501


def thunk() -> Any:
    """1 + 50 * (1 + 9) nodes, about 2,000 leaves."""
    blocks = [k.Block(i, [k.Leaf(j, width=64, rate=0.1, name="relu") for j in range(9)]) for i in range(50)]
    return k.Root(blocks)


def small() -> Any:
    return k.Root([k.Block(0, [k.Leaf(0)])])


Comparison = Callable[[str, Mapping[str, Callable[[], object]], float], None]


@pytest.fixture
def hold(request: pytest.FixtureRequest, report: Report) -> Comparison:
    """Holds `ours` to its target over the way before it; in the suite both run twice, unasserted."""

    def measure(case: str, ways: Mapping[str, Callable[[], object]], target: float) -> float:
        timings = interleave(ways, rounds=15)
        report.timings(TABLE, case, timings, {"ours": Target(limit=target)})
        return timings["ours"].ratio

    def compare(case: str, ways: Mapping[str, Callable[[], object]], target: float) -> None:
        if is_measuring(request):
            assert_ratio(partial(measure, case, ways, target), target)
        else:
            interleave(ways, rounds=2, warmup=0)

    return compare


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


def test_tracing_to_a_dict_costs_at_most_5_us_per_node(
    request: pytest.FixtureRequest, report: Report
) -> None:
    cases = {"plain": plain_objects, "trace": lambda: L.trace(thunk, as_dict=True)}
    assert len(str(cases["trace"]()).split("_target_")) == NODES + 1
    least = quietest(request, cases, inner=1)
    if is_measuring(request):
        each, plain = least["trace"] / NODES, least["plain"] / NODES
        case, target = "one node of a trace to a dict", Target(limit=5e-6, of="value")
        report.figure(ALONE, case, "plain construction", plain)
        report.figure(ALONE, case, "ours", each, ratio=each / plain, target=target)
        assert each <= 5e-6 * 1.1, f"measured {each * 1e6:.2f} us per node, target 5 us"


def test_tracing_to_a_dict_is_5_times_faster_than_fiddle(hold: Comparison) -> None:
    ways = {
        "fiddle auto_config": k.fiddle_root.as_buildable,
        "ours": lambda: L.trace(thunk, as_dict=True),
    }
    hold("trace to a dict", ways, 1 / 5)


def test_a_trace_with_a_config_object_costs_one_create(hold: Comparison) -> None:
    plain = L.trace(thunk, as_dict=True)
    ways = {"OmegaConf.create alone": lambda: OmegaConf.create(plain), "ours": lambda: L.trace(thunk)}
    hold("trace to a config object", ways, 1.1)


def test_building_is_50_times_faster_than_hydra(request: pytest.FixtureRequest, hold: Comparison) -> None:
    plain = OmegaConf.to_container(L.trace(thunk if is_measuring(request) else small))
    config = OmegaConf.create(plain)
    ways = {"Hydra instantiate": lambda: hydra_instantiate(config), "ours": lambda: L.instantiate(plain)}
    hold("build", ways, 1 / 50)


def test_yaml_is_4_times_faster_and_reloads_identically(
    request: pytest.FixtureRequest, hold: Comparison
) -> None:
    config = L.trace(thunk if is_measuring(request) else small)
    plain = OmegaConf.to_container(config)
    assert OmegaConf.create(L.to_yaml(plain)) == config
    assert yaml.safe_load(L.to_yaml(plain)) == plain
    ways = {"OmegaConf.to_yaml": lambda: OmegaConf.to_yaml(config), "ours": lambda: L.to_yaml(plain)}
    hold("to YAML", ways, 1 / 4)


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
    ids=["unrecorded", "scalar", "function", "class"],
)
def test_a_decorated_call_outside_a_trace_costs_little(
    request: pytest.FixtureRequest, report: Report, name: str, plain: Any, decorated: Any, limit: float
) -> None:
    calls = {"plain": lambda: plain(3, rate=0.1), "decorated": lambda: decorated(3, rate=0.1)}
    least = quietest(request, calls, inner=500)
    extra = least["decorated"] - least["plain"]
    if is_measuring(request):
        case, target = f"call outside a trace, {name}", Target(limit=limit, of="value")
        report.figure(ALONE, case, "undecorated", least["plain"])
        report.figure(ALONE, case, "added by the decorator", extra, target=target)
        assert extra <= limit * 1.1, f"measured +{extra * 1e6:.3f} us, target {limit * 1e6} us"
