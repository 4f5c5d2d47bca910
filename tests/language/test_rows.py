"""The numbered edge cases of the config language; each test carries its number."""

import asyncio
import contextvars
import copy
import functools
import inspect
import pickle
import random
import re
import threading
import typing
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import configurables as c
import plain_builders as plain
import pytest
import torch
from hydra.utils import instantiate as hydra_instantiate
from omegaconf import DictConfig, ListConfig, OmegaConf
from torch import nn

from tl_integrations import language as L
from tl_integrations.errors import TraceLeakError, TraceNodeError

Json = dict[str, Any]


def traced(value: Any) -> Json:
    """The config of `same(value)` as a plain dict."""
    config: Json = L.trace(lambda: c.same(value), as_dict=True)
    return config


def rebuilt(value: Any) -> Any:
    """What comes back when a value goes through a config, YAML text and the builder."""
    config = OmegaConf.create(L.to_yaml(L.trace(lambda: c.same(value))))
    fast = L.instantiate(config)
    hydra = L.instantiate(config, engine="hydra")
    assert repr(hydra).replace("_DeferredTarget", "functools.partial") == repr(fast)
    return fast


plain_typed = L.wrap(plain.typed)


def test_each_of_the_sixty_rows_is_a_test() -> None:
    """The rows of the table of edge cases; a test of several rows names them all, as `row_14_and_59`."""
    names = re.findall(
        r"def test_row_([\w]+)", "".join(p.read_text() for p in Path(__file__).parent.glob("test_*.py"))
    )
    numbers = {int(number) for name in names for number in re.findall(r"(?:^|and_)(\d\d)(?=_)", name)}
    assert numbers == set(range(1, 61))


def test_row_01_a_decorated_function_keeps_its_face() -> None:
    assert c.build.__name__ == "build"
    assert c.build.__wrapped__.__qualname__ == "build"  # type: ignore[attr-defined]
    assert list(inspect.signature(c.build).parameters) == ["in_features", "out_features"]
    assert pickle.loads(pickle.dumps(c.build)) is c.build
    assert L.trace(lambda: c.build(1, 2))._target_ == "configurables.build"


def test_row_02_a_decorated_class_is_the_same_class() -> None:
    class Own(c.Encoder):
        def __init__(self) -> None:
            super().__init__(2)

    assert isinstance(c.Encoder(2), c.Encoder)
    assert isinstance(Own(), c.Encoder)
    assert c.Encoder.DEFAULTS == ("depth", 2)
    assert c.Encoder.mro()[1] is nn.Module
    assert isinstance(pickle.loads(pickle.dumps(c.Encoder(2))), c.Encoder)


def test_row_03_instrumenting_leaves_signature_init_and_metaclass_alone() -> None:
    assert list(inspect.signature(c.Encoder).parameters) == ["width", "depth", "act"]
    assert type(c.Encoder) is type
    assert c.Encoder.__init__.__qualname__ == "Encoder.__init__"
    assert list(inspect.signature(c.Child).parameters) == ["width", "extra"]
    assert list(inspect.signature(c.GrandChild).parameters) == ["width", "extra"]
    assert c.Box[int](3).item == 3  # type: ignore[index]
    assert torch.equal(
        torch.compile(c.Encoder(2), backend="eager", fullgraph=True)(torch.ones(1, 2)).isnan(),
        torch.zeros(1, 2).bool(),
    )


def test_row_04_a_class_without_init_refuses_arguments() -> None:
    with pytest.raises(TypeError, match=r"NoInit\(\) takes no arguments"):
        c.NoInit(1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        L.trace(lambda: c.NoInit(1))  # type: ignore[call-arg]
    assert traced(None) and L.trace(lambda: c.NoInit(), as_dict=True) == {"_target_": "configurables.NoInit"}


def test_row_05_an_undecorated_subclass_is_built_for_real() -> None:
    with pytest.raises(TypeError, match="PlainChild"):
        L.trace(lambda: c.PlainChild(2))
    built = L.trace(lambda: c.PlainChild(2), strict=False)
    assert type(built) is c.PlainChild


def test_row_06_a_decorated_subclass_is_recorded_once_as_itself() -> None:
    config = L.trace(lambda: c.Child(2, extra=3), as_dict=True)
    assert config == {"_target_": "configurables.Child", "width": 2, "extra": 3}
    assert len(L.instantiate(config).layers) == 3


def test_row_07_a_named_tuple_keeps_its_signature() -> None:
    assert list(inspect.signature(c.Point).parameters) == ["x", "y"]
    assert c.Point(1) == (1, 2)
    config = L.trace(lambda: c.Point(1, y=5), as_dict=True)
    assert config == {"_target_": "configurables.Point", "x": 1, "y": 5}
    assert L.instantiate(config) == c.Point(1, 5)


def test_row_08_slotted_dataclasses_work_in_both_orders() -> None:
    assert c.Slotted(1).y == []
    assert L.instantiate(L.trace(lambda: c.Slotted(1, y=[2]))) == c.Slotted(1, [2])
    assert L.trace(lambda: c.SlottedAbove(3), as_dict=True) == {
        "_target_": "configurables.SlottedAbove",
        "x": 3,
    }
    assert L.instantiate(L.trace(lambda: c.SlottedAbove(3))) == c.SlottedAbove(3)


def test_row_09_copies_and_unpickling_during_a_trace_build_for_real() -> None:
    model = c.Encoder(2)
    text = pickle.dumps(model)
    seen: list[Any] = []

    def thunk() -> Any:
        seen.extend([copy.deepcopy(model), copy.copy(model), pickle.loads(text), copy.deepcopy(c.NoInit)])
        return c.Encoder(3)

    assert L.trace(thunk).width == 3
    assert [type(one) for one in seen[:3]] == [c.Encoder] * 3


def test_row_09_objects_that_need_no_arguments_are_copied_too() -> None:
    original = c.NoInit()
    text = pickle.dumps(original)

    def thunk() -> Any:
        copies = copy.deepcopy(original), copy.copy(original), pickle.loads(text)
        assert all(type(one) is c.NoInit for one in copies)
        return c.NoInit()

    assert L.trace(thunk)._target_ == "configurables.NoInit"


def test_row_10_a_method_is_refused_inside_a_trace() -> None:
    assert c.Family().method(3) == 3
    with pytest.raises(TypeError, match="Decorate the class"):
        L.trace(lambda: c.Family().method(3))


@pytest.mark.parametrize("name", ["made", "made_too"])
def test_row_11_classmethods_in_both_orders(name: str) -> None:
    assert getattr(c.Family, name)(3) == ("Family", 3)
    config = L.trace(lambda: getattr(c.SubFamily, name)(3))
    assert config == {"_target_": f"configurables.SubFamily.{name}", "size": 3}
    assert L.instantiate(config) == ("SubFamily", 3)


@pytest.mark.parametrize("name", ["free", "free_too"])
def test_row_11_staticmethods_in_both_orders(name: str) -> None:
    config = L.trace(lambda: getattr(c.Family, name)(3))
    assert config == {"_target_": f"configurables.Family.{name}", "size": 3}
    assert L.instantiate(config) == 3


def test_row_12_a_lambda_is_refused_as_target_and_value() -> None:
    with pytest.raises(TypeError, match="<lambda>"):
        L.configurable(lambda: 1)
    with pytest.raises(TypeError, match=r"<lambda>.*L\.partial"):
        L.trace(lambda: L.call(lambda: 1)())
    with pytest.raises(TypeError, match="<lambda>"):
        traced(lambda: 1)


def test_row_13_a_local_function_works_but_cannot_be_traced() -> None:
    @L.configurable
    def inner(a: int) -> int:
        return a

    @L.configurable
    class Local:
        pass

    assert inner(1) == 1 and isinstance(Local(), Local)
    for thunk in (lambda: inner(1), lambda: Local()):
        with pytest.raises(TypeError, match="<locals>"):
            L.trace(thunk)


def test_row_15_the_path_must_lead_back_to_the_very_object() -> None:
    stranger = L.configurable(type("Encoder", (), {"__module__": "configurables", "__qualname__": "Encoder"}))
    with pytest.raises(TypeError, match="something else"):
        L.trace(lambda: stranger())
    alias = L.configurable(name="torch.nn.Linear")(nn.Linear)
    assert L.trace(lambda: alias(1, 2))._target_ == "torch.nn.Linear"
    with pytest.raises(TypeError, match="does not lead to"):
        L.trace(lambda: L.configurable(name="torch.nn.ReLU")(nn.Linear)(1, 2))


def test_row_16_a_partial_becomes_a_partial_node() -> None:
    value = functools.partial(plain.gather, 1, [2], key="v")
    assert traced(value)["value"] == {
        "_target_": "plain_builders.gather",
        "_partial_": True,
        "_args_": [1, [2]],
        "key": "v",
        "_convert_": "all",
    }
    again = rebuilt(value)
    assert isinstance(again, functools.partial) and again(3) == ((1, [2], 3), {"key": "v"})


def test_row_17_dataclass_and_attrs_instances() -> None:
    assert rebuilt([plain.Settings(3, ["b"])]) == [plain.Settings(3, ["b"])]
    assert rebuilt(plain.Fields(1)) == plain.Fields(1)
    kept = plain.Derived(2)
    assert rebuilt(kept) == kept
    kept.double = 99
    with pytest.raises(TypeError, match="something else"):
        traced(kept)


def test_row_18_a_namedtuple_comes_back_exactly() -> None:
    again = rebuilt(plain.Pair(1, (2, 3)))
    assert type(again) is plain.Pair and again == plain.Pair(1, (2, 3)) and type(again.right) is tuple


def test_row_19_enums_keep_identity() -> None:
    assert rebuilt(plain.Color.RED) is plain.Color.RED
    assert rebuilt(plain.Bits.A | plain.Bits.B) == plain.Bits.A | plain.Bits.B


def test_row_20_paths_are_portable() -> None:
    assert traced(Path("a/b"))["value"] == {"_target_": "pathlib.Path", "_args_": ["a/b"]}
    assert rebuilt(Path("a/b")) == Path("a/b")


def test_row_21_torch_constants_devices_and_sizes() -> None:
    assert rebuilt(torch.float32) is torch.float32
    assert rebuilt(torch.channels_last) is torch.channels_last
    assert rebuilt(torch.strided) is torch.strided
    assert rebuilt(torch.device("cuda:1")) == torch.device("cuda:1")
    again = rebuilt(torch.Size([1, 2]))
    assert type(again) is torch.Size and again == torch.Size([1, 2])


def test_row_22_small_tensors_only() -> None:
    for value in (
        torch.ones(2),
        torch.tensor([1.5, 2], dtype=torch.bfloat16),
        torch.tensor(1 + 2j),
        torch.zeros(0, 3),
    ):
        again = rebuilt(value)
        assert again.dtype is value.dtype and again.shape == value.shape and torch.equal(again, value)
    for bad in (torch.ones(65), torch.ones(2, requires_grad=True), torch.ones(2, device="meta")):
        with pytest.raises(TypeError, match=r"value.*builds it"):
            traced(bad)


def test_row_23_a_live_module_is_spliced_with_a_warning_or_refused() -> None:
    encoder = c.Encoder(2)
    with pytest.warns(UserWarning, match="weights are not part of a config"):
        config = L.trace(lambda: c.Model(encoder), as_dict=True)
    assert config["encoder"] == {"_target_": "configurables.Encoder", "width": 2}
    with pytest.raises(TypeError, match=r"Model\(encoder\).*Linear"):
        L.trace(lambda: c.Model(nn.Linear(1, 1)))


def test_row_24_a_node_used_twice_becomes_a_relative_reference() -> None:
    def thunk() -> Any:
        shared = c.Encoder(2)
        return c.Model(shared, head=shared, blocks=[shared, c.Model(shared)])

    config = L.trace(thunk, as_dict=True)
    assert config["head"] == "${.encoder}"
    assert config["blocks"][0] == "${..encoder}"
    assert config["blocks"][1]["encoder"] == "${...encoder}"
    model = L.instantiate({"outer": {"m": config}})["outer"]["m"]
    assert model.head is model.encoder is model.blocks[0] is model.blocks[1].encoder
    double = L.trace(thunk, as_dict=True, sharing="duplicate")
    assert double["head"] == double["encoder"]
    with pytest.raises(TypeError, match="used twice"):
        L.trace(thunk, sharing="refuse")


@pytest.mark.parametrize("key", [1, 2.5, True, b"k"])
def test_row_24_a_node_shared_from_under_a_key_that_is_no_text_can_be_followed_by_plain_hydra(
    key: Any,
) -> None:
    def thunk() -> Any:
        shared = c.Encoder(2)
        return c.pair({key: shared, "n": [1]}, [shared])

    config = L.trace(thunk, as_dict=True)
    left, right = L.instantiate(OmegaConf.create(L.to_yaml(config)))
    assert list(left) == [key, "n"] and type(next(iter(left))) is type(key)
    assert left[key] is right[0]
    left, right = hydra_instantiate(OmegaConf.create(L.to_yaml(config)))
    assert list(left) == [key, "n"] and repr(left[key]) == repr(right[0])
    left, right = L.instantiate(L.config_of(c.Box(thunk()))).item
    assert left[key] is right[0]
    plain_keys = L.trace(lambda: c.pair({key: 1}, [c.Encoder(2)]), as_dict=True)
    assert plain_keys["left"] == {key: 1}


def test_row_24_an_explicit_node_used_twice_is_one() -> None:
    shared = L.call(c.Encoder)(2)
    config = L.call(c.Model)(shared, head=shared)
    assert OmegaConf.to_container(config)["head"] == "${.encoder}"
    model = L.instantiate(config)
    assert model.head is model.encoder


def test_row_25_a_stored_builder_refuses_sharing() -> None:
    from tl_integrations.language import registry

    def thunk() -> Any:
        shared = c.Encoder(2)
        return c.Model(shared, head=shared)

    with pytest.raises(TypeError, match='sharing="duplicate"'):
        registry.entry(thunk, group="model", name="tied").make()


def test_row_26_builders_in_lists_dicts_and_tuples() -> None:
    config = L.trace(lambda: c.pair([c.Encoder(1)], {"a": (c.Encoder(2), 3)}))
    left, right = L.instantiate(OmegaConf.create(L.to_yaml(config)))
    assert type(left) is list and type(right) is dict and type(right["a"]) is tuple
    assert left[0].layers[0].in_features == 1 and right["a"][0].layers[0].in_features == 2


def test_row_27_control_flow_is_ordinary_python() -> None:
    def thunk() -> Any:
        blocks = [c.Encoder(width) for width in range(1, 3)]
        width = 3
        while width < 5:
            if width % 2:
                blocks.append(c.Encoder(width))
            width += 1
        try:
            {}["missing"]
        except KeyError:
            return c.Model(c.Encoder(9), blocks=blocks)

    assert [block["width"] for block in L.trace(thunk, as_dict=True)["blocks"]] == [1, 2, 3]


def test_row_28_torch_containers_are_recorded_through_wrap() -> None:
    wrapped = L.wrap(nn)
    config = L.trace(lambda: wrapped.Sequential(c.Encoder(2), wrapped.ModuleList([c.Encoder(3)])))
    built = L.instantiate(OmegaConf.create(L.to_yaml(config)))
    assert type(built) is nn.Sequential and built[1][0].layers[0].in_features == 3
    with pytest.raises(TypeError) as caught:
        L.trace(lambda: nn.Sequential(c.Encoder(2)))
    assert any("L.wrap(torch.nn)" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    "value", [nn.ReLU, torch.nn.functional.relu, torch.relu, len, torch.sigmoid, torch.add]
)
def test_row_29_classes_and_functions_by_reference(value: Any) -> None:
    assert rebuilt(value) is value


def test_row_31_numbers_come_back_exactly() -> None:
    values = [
        None,
        float("inf"),
        -float("inf"),
        -0.0,
        1e-3,
        1e-320,
        1.7976931348623157e308,
        2**200,
        -(10**40),
        True,
        0.1 + 0.2,
    ]
    again = rebuilt(values)
    assert [repr(one) for one in again] == [repr(one) for one in values]
    nan = rebuilt(float("nan"))
    assert nan != nan
    assert not L.diff(L.trace(lambda: c.same(float("nan"))), L.trace(lambda: c.same(float("nan"))))


TRICKY = [
    *"yes no on off y n true False null ~ Null 012 0o7 0x1F 1_000 12:30:45 2024-01-01 1e-3 1E5 1e5".split(),
    "+1e3",
    *"1.e3 -1e-3 1_0e3 .5 -.inf .NaN nan inf - # {a} [a] &a *a !a | > %a @a `a ' it's \\ a\\nb".split(),
    *"= << ? : a:".split(),
    *"e3 --- ... ??? 0b1 1__0 0.1.2 +.inf 190:20:30.15 !!int ,a ]".split(),
    *(
        "",
        " ",
        '"',
        "2024-01-01 10:00:00",
        "a\nb",
        "a\n\n b \n",
        "\ta",
        "a\t",
        "\0",
        "\x07bell",
        " lead",
        "trail ",
    ),
    *(
        "a: b",
        "- a",
        "a #b",
        "? a",
        "--- a",
        "\r\n",
        "a\rb",
        "\u2028",
        "\x85",
        "\ufeff",
        "\U0001f600",
        "\ud800",
    ),
    "x" * 200 + " " + "y" * 200,
]


@pytest.mark.parametrize("value", TRICKY)
def test_row_32_tricky_strings_come_back_exactly(value: str) -> None:
    assert rebuilt(value) == value
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        assert rebuilt({value: 1}) == {value: 1}


@pytest.mark.parametrize(
    "value", ["${a}", "x ${oc.env:HOME} y", "$${a}", "\\${a}", "100% ${a}", "%24{a}", "\n${é}"]
)
def test_row_33_a_literal_interpolation_stays_literal(value: str) -> None:
    assert rebuilt(value) == value


def test_row_34_a_literal_missing_mark_stays_literal() -> None:
    assert rebuilt("???") == "???"
    assert rebuilt(["???", "????"]) == ["???", "????"]


def test_row_35_a_wanted_interpolation_and_a_wanted_gap() -> None:
    config = L.trace(lambda: c.pair(L.ref("..lr"), L.MISSING), as_dict=True)
    assert config == {"_target_": "configurables.pair", "left": "${..lr}", "right": "???"}
    assert {type(value) for value in config.values()} == {str}
    whole = OmegaConf.create({"lr": 0.5, "p": config})
    with pytest.raises(ValueError, match=r"p\.right is missing"):
        L.instantiate(whole)
    assert L.instantiate(whole.p, right=1) == (0.5, 1)
    for bad in ("", "${a}", "a b", 3):
        with pytest.raises(TypeError):
            L.ref(bad)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "value",
    [
        {1: "a", "b": 2},
        {True: 1},
        {1.5: 1},
        {b"k": 1},
        {None: 1},
        {(1, "a"): [1]},
        {"a": {None: 2}},
        {"": 1},
        {plain.Color.RED: 1},
    ],
)
def test_row_36_awkward_keys(value: Any) -> None:
    again = rebuilt(value)
    assert again == value and [type(key) for key in again] == [type(key) for key in value]


def test_row_36_a_dotted_key_warns() -> None:
    with pytest.warns(UserWarning, match="command line"):
        assert rebuilt({"a.b": 1}) == {"a.b": 1}


@pytest.mark.parametrize("key", ["_target_", "_args_", "_partial_", "_convert_", "_recursive_"])
def test_row_37_a_dict_that_looks_like_a_node_stays_inert(key: str) -> None:
    value = {key: "os.system", "x": [{key: 1}]}
    assert rebuilt(value) == value


def test_row_38_a_nested_trace_gives_its_config_to_the_outer_one() -> None:
    def thunk() -> Any:
        inner = L.trace(lambda: c.Encoder(2))
        assert isinstance(inner, DictConfig) and L.is_tracing()
        return c.Model(inner)

    assert L.trace(thunk, as_dict=True)["encoder"] == {"_target_": "configurables.Encoder", "width": 2}


def test_row_39_an_exception_keeps_its_type_and_gains_a_note() -> None:
    def thunk() -> Any:
        c.Encoder(2)
        raise KeyError("mine")

    with pytest.raises(KeyError) as caught:
        L.trace(thunk)
    assert any("recorded so far: Encoder" in note for note in caught.value.__notes__)
    assert not L.is_tracing()


def test_row_40_generators_and_coroutines_are_refused() -> None:
    def generator() -> Iterator[Any]:
        yield c.Encoder(1)

    async def coroutine() -> Any:
        return c.Encoder(1)

    for thunk in (generator, coroutine):
        with pytest.raises(TypeError, match="async or generator"):
            L.trace(thunk)


def test_row_41_recursion() -> None:
    assert L.trace(lambda: c.recursive(3), as_dict=True) == {
        "_target_": "configurables.recursive",
        "depth": 3,
    }

    def helper(depth: int) -> Any:
        return c.same([helper(depth - 1)]) if depth else c.Encoder(1)

    assert L.trace(lambda: helper(3), as_dict=True)["value"][0]["value"][0]["value"][0]["width"] == 1
    cycle: list[Any] = []
    cycle.append(cycle)
    with pytest.raises(TypeError, match="contains itself"):
        traced(cycle)
    deep: Any = 1
    for _ in range(5000):
        deep = [deep]
    with pytest.raises(TypeError, match="too deep"):
        traced(deep)


def test_row_42_threads_start_without_tracing_and_tasks_inherit_it() -> None:
    seen: dict[str, Any] = {}

    def look(name: str) -> None:
        seen[name] = type(c.same([name]))

    async def tasks() -> None:
        async def inner() -> None:
            seen["task"] = L.is_tracing()

        await asyncio.create_task(inner())
        seen["to_thread"] = await asyncio.to_thread(L.is_tracing)

    def thunk() -> Any:
        thread = threading.Thread(target=look, args=("thread",))
        thread.start()
        thread.join()
        with ThreadPoolExecutor(1) as pool:
            pool.submit(look, "pool").result()
        asyncio.run(tasks())
        return c.Encoder(1)

    L.trace(thunk)
    assert seen == {"thread": list, "pool": list, "task": True, "to_thread": True}


def test_row_42_a_task_that_outlives_the_trace_builds_for_real() -> None:
    contexts: list[contextvars.Context] = []

    def thunk() -> Any:
        contexts.append(contextvars.copy_context())
        return c.Encoder(1)

    L.trace(thunk)
    assert isinstance(contexts[0].run(lambda: c.Encoder(1)), nn.Module)


def test_row_43_and_44_check_pure_finds_randomness_and_difference() -> None:
    counter = iter(range(10))
    with pytest.raises(TypeError, match="two different configs"):
        L.trace(lambda: c.Encoder(next(counter)), check_pure=True)
    for draw in (random.random, lambda: torch.rand(1)):
        with pytest.raises(TypeError, match="random numbers"):
            L.trace(lambda draw=draw: (draw(), c.same(1))[1], check_pure=True)
    assert L.trace(lambda: c.Encoder(1), check_pure=True).width == 1


def test_row_45_records_survive_copies_and_stay_out_of_the_state_dict(tmp_path: Path) -> None:
    model = c.Model(c.Encoder(2))
    torch.save(model, tmp_path / "m.pt")
    for one in (
        copy.deepcopy(model),
        pickle.loads(pickle.dumps(model)),
        torch.load(tmp_path / "m.pt", weights_only=False),
    ):
        assert L.config_of(one) == L.config_of(model)
    assert all("_tl" not in key for key in model.state_dict())
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(1, 2)), model(torch.ones(1, 2)))


def test_row_46_calls_of_configurables_compile_in_one_graph() -> None:
    def step(x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = c.same(x) + c.scale(x, 2.0)
        return result

    compiled = torch.compile(step, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))


def test_row_49_annotations_are_preserved() -> None:
    assert typing.get_type_hints(c.build) == {"in_features": int, "out_features": int, "return": nn.Module}
    assert typing.get_type_hints(c.Encoder.__init__)["width"] is int


def test_row_50_values_are_recorded_as_given_whatever_type_is_declared() -> None:
    """No `check_types` is offered: a declared type is never enforced, and never used to change a value."""
    config = L.trace(lambda: plain_typed(rate=1, color="red"), as_dict=True)
    assert type(config["rate"]) is int and config["color"] == "red"
    for engine in ("fast", "hydra"):
        assert L.instantiate(config, engine=engine) == (1, "red")
        assert type(L.instantiate(config, engine=engine)[0]) is int


def test_row_51_arguments_are_taken_at_the_call() -> None:
    def thunk() -> Any:
        sizes = [1]
        node = c.same(sizes)
        sizes.append(2)
        return node

    assert L.trace(thunk, as_dict=True)["value"] == [1]


@pytest.mark.parametrize("name", ["self", "config", "path", "args", "kwargs", "target", "fn", "cls"])
def test_row_52_any_parameter_name_passes(name: str) -> None:
    config = L.trace(lambda: c.loose(1, **{name: 5}))
    assert L.instantiate(config) == (1, {name: 5})
    assert L.instantiate(L.call(plain.gather)(**{name: 5})) == ((), {name: 5})


def test_row_53_class_attributes_work_inside_a_trace() -> None:
    assert L.trace(lambda: c.Encoder(c.Encoder.DEFAULTS[1]), as_dict=True)["width"] == 2


def test_row_54_a_node_that_outlives_its_trace_is_refused() -> None:
    kept: list[Any] = []
    L.trace(lambda: kept.append(c.Encoder(1)) or kept[0])
    for use in (
        lambda: kept[0].width,
        lambda: L.trace(lambda: c.Model(kept[0])),
        lambda: L.call(c.Model)(kept[0]),
    ):
        with pytest.raises(TraceNodeError, match=r"test_rows\.py"):
            use()


def test_row_55_unused_calls_are_reported() -> None:
    with pytest.warns(L.OrphanNodeWarning, match=r"Encoder \(test_rows\.py"):
        L.trace(lambda: (c.Encoder(1), c.Encoder(2))[1])
    with pytest.raises(TraceLeakError, match="None of the recorded"):
        L.trace(lambda: (c.Encoder(1), {"a": L.trace(lambda: c.Encoder(2))})[1])


def test_row_56_decorating_twice_changes_nothing() -> None:
    assert L.configurable(c.build) is c.build
    assert L.configurable(c.Encoder) is c.Encoder
    assert L.configurable(record=False)(c.Encoder) is c.Encoder


def test_row_57_a_foreign_class_is_wrapped_and_left_alone() -> None:
    before = dict(vars(nn.Linear))
    linear = L.configurable(nn.Linear)
    assert dict(vars(nn.Linear)) == before and not isinstance(linear, type)
    assert L.trace(lambda: linear(1, 2))._target_ == "torch.nn.modules.linear.Linear"
    assert L.config_of(linear(1, 2)).out_features == 2
    assert linear.__name__ == "Linear"
    assert pickle.loads(pickle.dumps(linear))(1, 2).out_features == 2


def test_row_58_a_generic_alias_is_recorded_as_its_class() -> None:
    assert L.trace(lambda: c.Box[int](3)) == {"_target_": "configurables.Box", "item": 3}  # type: ignore[index]


@pytest.mark.parametrize("value", [nn.Linear(1, 1), 5, None, [1], L.call(c.build)(1, 2), lambda x: x])
def test_row_60_a_forgotten_lambda_is_named(value: Any) -> None:
    with pytest.raises(TypeError, match=r"L\.trace\(lambda: build\(\.\.\.\)\)"):
        L.trace(value)


USES = {
    "attribute": lambda node: node.width,
    "set": lambda node: setattr(node, "bar", 1),
    "delete": lambda node: delattr(node, "bar"),
    "call": lambda node: node(1),
    "item": lambda node: node[0],
    "iteration": list,
    "len": len,
    "bool": bool,
    "contains": lambda node: 1 in node,
    "add": lambda node: node + 1,
    "radd": lambda node: 1 + node,
    "less": lambda node: node < 1,
    "int": int,
    "float": float,
    "index": lambda node: [1][node],
    "torch": lambda node: torch.relu(node),
    "tensor arithmetic": lambda node: torch.ones(1) * node,
    "array": lambda node: __import__("numpy").asarray(node),
    "with": lambda node: node.__enter__(),
    "pickle": pickle.dumps,
    "copy": copy.copy,
    "deepcopy": copy.deepcopy,
    "path": lambda node: Path(node),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_misuse_of_a_node_names_the_recording_call(use: Any) -> None:
    with pytest.raises(
        TraceNodeError, match=r"'Encoder' was recorded \(test_rows\.py:\d+\), not built.*L\.untraced"
    ):
        L.trace(lambda: use(c.Encoder(1)))


def test_a_node_may_be_shown_hashed_and_compared_by_identity() -> None:
    def thunk() -> Any:
        node = c.Encoder(1)
        assert node == node and node != c.same(1) and {node: 1}[node] == 1 and "Encoder" in repr(node)
        return node

    with pytest.warns(L.OrphanNodeWarning):
        L.trace(thunk)


def test_a_node_formatted_into_a_string_is_found() -> None:
    with pytest.raises(TraceNodeError, match="formatted into a string"):
        L.trace(lambda: c.same(f"model {c.Encoder(1)}"))


def test_untraced_runs_real_code_inside_a_trace() -> None:
    def thunk() -> Any:
        with L.untraced():
            assert not L.is_tracing()
            width = c.Encoder(3).layers[0].in_features
        return c.Encoder(width)

    assert L.trace(thunk).width == 3


def test_a_loose_trace_gives_lists_but_no_half_built_objects() -> None:
    class Holder:
        def __init__(self) -> None:
            self.enc = c.Encoder(1)

    assert isinstance(L.trace(lambda: [c.Encoder(1)], strict=False), ListConfig)
    with pytest.raises(TraceLeakError, match="Encoder"):
        L.trace(lambda: Holder(), strict=False)
    assert L.trace(lambda: {"a": c.Encoder(1), "lr": 0.1}, as_dict=True)["lr"] == 0.1
    with pytest.raises(TypeError):
        L.trace(lambda: {"a": 1})


def test_row_14_and_59_main_targets_work_in_memory_only(tmp_path: Path) -> None:
    import os
    import subprocess
    import sys

    (tmp_path / "script.py").write_text(
        "from tl_integrations import language as L\n"
        "@L.configurable\n"
        "def f(a): return a\n"
        "cfg = L.trace(lambda: f(1))\n"
        "assert L.instantiate(cfg) == 1\n"
        "try: print(L.to_yaml(cfg).split()[1])\n"
        "except TypeError as error: print(error)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(tmp_path)}
    script = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    assert "script.py, which is run as a script" in script.stdout, script.stderr
    module = subprocess.run(
        [sys.executable, "-m", "script"], cwd=tmp_path, capture_output=True, text=True, env=env
    )
    assert module.stdout.strip() == "script.f", module.stderr
