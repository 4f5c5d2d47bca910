"""Building: what Hydra means by a config, with better errors."""

import functools
from typing import Any

import configurables as c
import plain_builders as plain
import pytest
import torch
from omegaconf import DictConfig, ListConfig, OmegaConf
from torch import nn

from tl_integrations import language as L
from tl_integrations.errors import BuildError

GATHER = "plain_builders.Gathered"
ALLOW = "plain_builders.*"

PARITY: list[Any] = [
    {"_target_": GATHER, "a": 1, "b": [1, {"c": 2}], "d": {"e": [3]}},
    {"_target_": GATHER, "_convert_": "all", "a": [1, {"c": 2}], "d": {"e": [3]}},
    {"_target_": GATHER, "_convert_": "partial", "a": [1, {"c": 2}]},
    {"_target_": GATHER, "_convert_": "object", "a": [1, {"c": 2}]},
    {"_target_": GATHER, "_args_": [1, [2], {"_target_": GATHER, "x": 1}]},
    {"_target_": GATHER, "_recursive_": False, "a": {"_target_": GATHER, "x": 1}},
    {"_target_": GATHER, "_recursive_": False, "_convert_": "all", "a": {"_target_": GATHER, "x": 1}},
    {"_target_": GATHER, "a": {"_target_": GATHER, "_convert_": "all", "x": [{"y": [1]}]}},
    {"_target_": GATHER, "_convert_": "all", "a": {"_target_": GATHER, "x": [{"y": [1]}]}},
    {"_target_": GATHER, "_convert_": "all", "a": {"_target_": GATHER, "_convert_": "none", "x": [1]}},
    {"_target_": GATHER, "a": [{"_target_": GATHER, "x": [1]}], "b": {"c": {"_target_": GATHER}}},
    {"_target_": GATHER, "a": "${b}", "b": 5, "c": "x${b}y", "d": ["${..b}"], "e": "${d[0]}"},
    {"_target_": GATHER, "a": None, "b": True, "c": 1.5, "d": "text"},
    {"a": {"_target_": GATHER, "x": "${b}"}, "b": [1, {"_target_": GATHER}], "c": "plain"},
    [{"_target_": GATHER, "x": 1}, 2, {"y": {"_target_": GATHER}}],
    {"_target_": GATHER, "a": {"_target_": GATHER, "_partial_": True, "x": 1}},
]  # fmt: skip


def shape(value: Any) -> Any:
    """A value with its types, so that a ListConfig differs from a list."""
    if isinstance(value, DictConfig | dict):
        return type(value).__name__, {key: shape(item) for key, item in value.items()}
    if isinstance(value, ListConfig | list | tuple):
        return type(value).__name__, [shape(item) for item in value]
    if isinstance(value, plain.Gathered):
        return "Gathered", shape(value.args), shape(value.kwargs)
    if isinstance(value, functools.partial):
        return "partial", shape(value.args), shape(value.keywords)
    return type(value).__name__, value


@pytest.mark.parametrize("config", PARITY)
@pytest.mark.parametrize("form", [OmegaConf.create, lambda plain: plain])
def test_the_fast_engine_builds_what_hydra_builds(config: Any, form: Any) -> None:
    fast = L.instantiate(form(config), allow=ALLOW)
    hydra = L.instantiate(form(config), allow=ALLOW, engine="hydra")
    assert shape(fast) == shape(hydra)


def test_shared_nodes_are_one_object_also_by_absolute_and_listed_references() -> None:
    enc = {"_target_": "torch.nn.Linear", "in_features": 1, "out_features": 1}
    config = {
        "enc": enc,
        "a": {"e": "${enc}"},
        "b": ["${enc}", "${a.e}"],
        "c": "${b}",
        "d": {"x": "${..enc}"},
    }
    built = L.instantiate(config)
    assert (
        len({id(one) for one in (built["enc"], built["a"]["e"], *built["b"], *built["c"], built["d"]["x"])})
        == 1
    )
    assert L.instantiate(OmegaConf.create(config).a)["e"].in_features == 1


def test_equal_nodes_that_are_written_twice_are_two_objects() -> None:
    node = {"_target_": "torch.nn.Linear", "in_features": 1, "out_features": 1}
    built = L.instantiate({"a": node, "b": node})
    assert built["a"] is not built["b"]


def test_a_part_of_a_config_still_sees_its_parents() -> None:
    config = OmegaConf.create(
        {
            "width": 5,
            "m": {
                "x": {"_target_": "torch.nn.Linear", "in_features": "${width}", "out_features": "${..y}"},
                "y": 2,
            },
        }
    )
    built = L.instantiate(config.m.x)
    assert (built.in_features, built.out_features) == (5, 2)


def test_live_objects_pass_through_untouched() -> None:
    module, settings = nn.Linear(1, 1), plain.Settings(1)
    config = L.trace(lambda: c.pair(1))
    assert L.instantiate(config, right=module)[1] is module
    assert L.instantiate(config, right=settings)[1] is settings
    assert L.instantiate({"_target_": GATHER, "x": module}, allow=ALLOW).kwargs["x"] is module
    assert (
        L.instantiate(
            OmegaConf.create({"_target_": GATHER, "x": module}, flags={"allow_objects": True}), allow=ALLOW
        ).kwargs["x"]
        is module
    )
    assert L.instantiate({"_target_": GATHER, "_args_": [1]}, 7, module, allow=ALLOW).args == (7, module)


def test_the_given_config_is_not_changed() -> None:
    config = OmegaConf.create({"a": {"_target_": GATHER, "x": "${b}"}, "b": {"_target_": GATHER, "y": [1]}})
    before = OmegaConf.to_yaml(config)
    L.instantiate(config, allow=ALLOW)
    assert OmegaConf.to_yaml(config) == before


def test_partials_skip_what_is_missing() -> None:
    made = L.instantiate({"_target_": "torch.optim.Adam", "_partial_": True, "params": "???", "lr": 0.5})
    assert made([nn.Parameter(torch.ones(1))]).defaults["lr"] == 0.5


@pytest.mark.parametrize(
    ("config", "text"),
    [
        (
            {"m": {"enc": {"_target_": "torch.nn.Linear", "in_features": "???", "out_features": 1}}},
            r"m\.enc\.in_features is missing",
        ),
        (
            {"m": {"enc": {"_target_": "torch.nn.Linear", "in_features": "${no.such}"}}},
            r"m\.enc\.in_features: '\$\{no\.such\}' leads nowhere",
        ),
        ({"m": [{"x": "${.y}", "y": "${.x}"}]}, r"m\[0\]\.x refers to itself"),
        ({"m": {"x": "${...........y}"}}, "above the root"),
        ({"m": {"_target_": "torch.nn.Linear", "_args_": 3}}, r"m\._args_ must be a list"),
        ({"m": {"_target_": "torch.nn.Linear", "_partial_": "yes"}}, r"m\._partial_ must be true or false"),
        ({"m": {"_target_": "torch.nn.Linear", "_recursive_": 1}}, r"m\._recursive_ must be"),
        ({"m": {"_target_": "torch.nn.Linear", "_convert_": "most"}}, r"m\._convert_ is 'most'"),
        ({"m": {"x": "${m}"}}, "refers to itself"),
        (5, "not int"),
        (None, "not NoneType"),
    ],
)
def test_what_cannot_be_built_names_its_key(config: Any, text: str) -> None:
    with pytest.raises(BuildError, match=text):
        L.instantiate(config)
    if isinstance(config, dict):
        with pytest.raises(BuildError, match=text):
            L.instantiate(OmegaConf.create(config))


def test_a_cycle_in_plain_data_is_an_error() -> None:
    cyclic: dict[str, Any] = {"a": []}
    cyclic["a"].append(cyclic)
    with pytest.raises(BuildError, match="contains itself"):
        L.instantiate(cyclic)


def test_a_builder_that_fails_keeps_its_error_and_says_where() -> None:
    config = L.trace(lambda: c.Model(c.Encoder(1), blocks=[c.fails("mine")]))
    with pytest.raises(KeyError, match="mine") as caught:
        L.instantiate(config)
    assert any(
        "blocks[0] (configurables.fails), recorded at test_building.py:" in note
        for note in caught.value.__notes__
    )
    with pytest.raises(TypeError, match="unexpected keyword") as wrong:
        L.instantiate({"x": {"_target_": "torch.nn.ReLU", "nope": 1}})
    assert any("while building x (torch.nn.ReLU)" in note for note in wrong.value.__notes__)


def test_building_inside_a_trace_builds() -> None:
    def thunk() -> Any:
        assert isinstance(L.instantiate({"_target_": "configurables.Encoder", "width": 2}), c.Encoder)
        return c.Encoder(3)

    assert L.trace(thunk).width == 3


def test_configs_as_arguments_arrive_as_configs() -> None:
    settings = OmegaConf.create({"lr": 0.1, "sizes": [1, 2]})
    holds = OmegaConf.create({"net": {"_target_": "torch.nn.ReLU"}})
    for engine in ("fast", "hydra"):
        got, sizes = L.instantiate(
            L.trace(lambda: c.takes_config(settings, sizes=[1, (2, 3)])), engine=engine
        )
        assert (
            isinstance(got, DictConfig)
            and got == settings
            and type(sizes) is list
            and type(sizes[1]) is tuple
        )
        got, _ = L.instantiate(L.trace(lambda: c.takes_config(holds)), engine=engine)
        assert isinstance(got, DictConfig) and got == holds
        below = L.instantiate(L.trace(lambda: c.same([c.takes_config(settings)])), engine=engine)
        assert isinstance(below[0][0], DictConfig)
    assert "_convert_" not in L.trace(lambda: c.takes_config(settings), as_dict=True)
    with pytest.raises(TypeError, match="would not be built"):
        L.trace(lambda: c.takes_config(holds, sizes=(1, 2)))


def test_defaults_modes() -> None:
    assert L.trace(lambda: c.with_defaults(1), as_dict=True) == {
        "_target_": "configurables.with_defaults",
        "a": 1,
    }
    for mode in ("include", "pin"):
        full = L.trace(lambda: c.with_defaults(1), as_dict=True, defaults=mode)
        assert list(full) == ["_target_", "a", "b", "d"]
        a, b, _, d = L.instantiate(full)
        assert (a, b, d) == (1, (0.9, 0.99), "${x}")
    outer = L.trace(
        lambda: c.Model(L.call(c.Encoder)(1), head=L.call(plain.Settings)(width=2)),
        as_dict=True,
        defaults="include",
    )
    assert outer["encoder"]["depth"] == 2 and outer["head"]["names"] == ["a"]
    spliced = L.call(c.Encoder)(1)
    assert L.trace(lambda: c.Model(spliced), as_dict=True, defaults="pin")["encoder"]["depth"] == 2
    with pytest.raises(TypeError, match="'all' is none of"):
        L.trace(lambda: c.with_defaults(1), defaults="all")  # type: ignore[arg-type]


def test_pinning_fills_an_existing_tree_and_lists_what_it_cannot() -> None:
    from tl_integrations.language.pinning import pinned

    tree = {
        "a": {"_target_": "configurables.with_defaults", "a": "${x}"},
        "x": 1,
        "b": [{"_target_": "not_there.at_all"}],
    }
    filled, unpinned = pinned(tree)
    assert filled["a"]["d"]["_target_"] == "urllib.parse.unquote" and filled["a"]["a"] == "${x}"
    assert unpinned == ["a.c", "b[0]._target_"]
    assert tree["a"] == {"_target_": "configurables.with_defaults", "a": "${x}"}
    assert L.instantiate(filled["a"] | {"a": 1})[1] == (0.9, 0.99)


def test_lint_names_what_would_not_bind() -> None:
    from tl_integrations.language.linting import problems

    assert problems("configurables.Encoder", ["width", "_convert_"]) == []
    assert "needs 'width'" in problems("configurables.Encoder", [])[0]
    assert problems("configurables.Encoder", [], partial=True) == []
    assert "'depth'" in problems("configurables.Encoder", ["width", "dept"])[0]
    assert "by position only" in problems("configurables.positional_only", ["a"])[0]
    assert "twice" in problems("configurables.Encoder", ["width"], positional=1)[0]
    assert "no attribute" in problems("configurables.Encodr", [])[0]
    assert "never allowed" in problems("os.system", [])[0]
    assert "never allowed" in problems("plain_aliases.run", [])[0]
    assert "no module" in problems("not_there.x", [])[0]


@pytest.mark.parametrize(
    "call",
    [
        lambda f: f(1, 2, c=3, d=5),
        lambda f: f(1),
        lambda f: f(1, d=2),
        lambda f: f(1, 2, 3),
    ],
)
def test_positional_only_parameters_stay_positional(call: Any) -> None:
    config = L.trace(lambda: call(c.positional_only))
    assert "a" not in config and "b" not in config
    assert L.instantiate(config) == L.instantiate(config, engine="hydra") == call(c.positional_only)


def test_explicit_calls_keep_variadic_arguments() -> None:
    config = L.call(c.variadic)(1, [2])
    assert OmegaConf.to_container(config) == {
        "_target_": "configurables.variadic",
        "_args_": [1, [2]],
        "_convert_": "all",
    }
    assert L.instantiate(config) == (1, [2])
    made = L.instantiate(L.partial(plain.gather)(1, key=2))
    assert made(3) == ((1, 3), {"key": 2})
    assert L.instantiate(L.partial(c.build)(in_features=3))(out_features=2).in_features == 3
    assert L.instantiate(L.call(functools.partial(plain.gather, 1))(2)) == ((1, 2), {})
    with pytest.raises(TypeError, match="not its name"):
        L.call("torch.nn.Linear")  # type: ignore[arg-type]


def test_a_config_nested_beyond_reason_is_one_typed_error() -> None:
    for depth in (400, 3000):
        deep: Any = "${x}"
        for _ in range(depth):
            deep = {"a": deep}
        with pytest.raises(BuildError, match="too deep"):
            L.instantiate({"x": 1, "deep": deep})
