"""The config of live objects, however they were built."""

import copy
import gc
import pickle
import subprocess
import sys
import weakref
from pathlib import Path
from typing import Any

import configurables as c
import plain_builders as plain
import pytest
import torch
from hydra.utils import instantiate as hydra_instantiate
from torch import nn

from tl_integrations import language as L
from tl_integrations.errors import NoConfigError
from tl_integrations.language import keeping


def test_ordinary_code_leaves_the_config_of_what_it_built() -> None:
    model = c.Model(c.Encoder(2, act=nn.GELU), head=[1, (2, "${a}")], blocks=[c.Encoder(3)])
    expected = L.trace(
        lambda: c.Model(c.Encoder(2, act=nn.GELU), head=[1, (2, "${a}")], blocks=[c.Encoder(3)])
    )
    assert L.config_of(model) == expected
    assert L.config_of(model, as_dict=True) == L.trace(
        lambda: c.Model(c.Encoder(2, act=nn.GELU), head=[1, (2, "${a}")], blocks=[c.Encoder(3)]), as_dict=True
    )
    again = L.instantiate(L.config_of(model))
    assert L.config_of(again) == expected


def test_plain_hydra_leaves_it_too() -> None:
    config = L.trace(lambda: c.Model(c.Encoder(2), blocks=[c.Encoder(3)]))
    assert L.config_of(hydra_instantiate(config)) == config


def test_both_engines_build_things_with_equal_configs() -> None:
    config = L.trace(lambda: c.Model(c.Encoder(2), head=(1, {"a": [c.Encoder(1)]}), blocks=[c.Encoder(3)]))
    fast, hydra = L.instantiate(config), L.instantiate(config, engine="hydra")
    assert L.config_of(fast) == L.config_of(hydra) == config


def test_function_builders_and_their_undecorated_results() -> None:
    assert L.config_of(c.build(3, 4)) == L.trace(lambda: c.build(3, 4))
    assert L.config_of(L.instantiate(L.call(nn.Linear)(1, 2))) == L.call(nn.Linear)(1, 2)
    linear = L.wrap(nn.Linear)
    assert L.config_of(linear(1, out_features=2))._target_ == "torch.nn.modules.linear.Linear"


def test_objects_beside_nn_modules_are_remembered_while_they_live() -> None:
    box = c.Box([1, 2])
    assert L.config_of(box) == {"_target_": "configurables.Box", "item": [1, 2], "_convert_": "all"}
    assert "_tl" not in repr(vars(box))
    before = len(keeping._beside)
    ref = weakref.ref(box)
    del box
    gc.collect()
    assert ref() is None and len(keeping._beside) < before


def test_nothing_of_ours_shows_in_dataclasses() -> None:
    import dataclasses

    one = c.Slotted(1)
    assert dataclasses.asdict(one) == {"x": 1, "y": []}
    with pytest.raises(NoConfigError, match="weakly referenced"):
        L.config_of(one)


def test_sharing_is_told() -> None:
    shared = c.Encoder(2)
    config = L.config_of(c.Model(shared, head=shared, blocks=[shared]), as_dict=True)
    assert config["head"] == "${.encoder}" and config["blocks"] == ["${..encoder}"]


def test_a_replaced_part_is_stale() -> None:
    model = c.Model(c.Encoder(2), head=c.Encoder(3))
    model.head = nn.Linear(1, 1)
    with pytest.raises(NoConfigError, match="stale: head"):
        L.config_of(model)
    model.head = c.Encoder(3)
    with pytest.raises(NoConfigError, match="stale: head"):
        L.config_of(model)


def test_a_part_that_was_copied_or_hidden_is_not_stale() -> None:
    model = c.Model(c.Encoder(2), head=[c.Encoder(3)])
    assert L.config_of(model).head[0].width == 3
    copied = copy.deepcopy(c.Model(c.Encoder(2)))
    assert L.config_of(copied).encoder.width == 2
    nested = c.Model(nn.Sequential(c.Encoder(2)))
    with pytest.raises(NoConfigError, match=r"encoder: torch\.nn\.modules\.container\.Sequential"):
        L.config_of(nested)


def test_opaque_arguments_are_named_by_path() -> None:
    model = c.Model(c.Encoder(2), head={"a": [object()]}, blocks=[nn.Linear(1, 1)])
    with pytest.raises(NoConfigError) as caught:
        L.config_of(model)
    assert "head.a.0: builtins.object" in str(caught.value)
    assert "blocks.0: torch.nn.modules.linear.Linear" in str(caught.value)


def test_large_arguments_are_opaque_and_not_kept() -> None:
    for large in ([0] * 1000, "x" * 20_000, {"a": ["y" * 9000, "z" * 9000]}, torch.ones(100)):
        with pytest.raises(NoConfigError, match=r"larger than|100 elements"):
            L.config_of(c.Box(large))


def test_arguments_are_not_kept_alive() -> None:
    class Loader:
        pass

    loader = Loader()
    ref = weakref.ref(loader)
    model = c.Model(c.Encoder(2), head=loader)
    model.head = None
    del loader
    gc.collect()
    assert ref() is None


def test_arguments_are_taken_before_the_builder_can_change_them() -> None:
    sizes = [1, 2]
    box = c.popping(sizes)
    assert sizes == [1] and L.config_of(box).sizes == [1, 2]


def test_the_outermost_builder_wins_and_the_inner_is_kept_as_via() -> None:
    model = c.outer_builder(3)
    assert L.config_of(model) == {"_target_": "configurables.outer_builder", "width": 3}
    assert keeping.record_of(model)["_record_"]["via"][0]["_target_"] == "configurables.Encoder"  # type: ignore[index]
    assert L.config_of(c.Model(model)).encoder._target_ == "configurables.outer_builder"


def test_passing_through_does_not_pile_up() -> None:
    model = c.Encoder(2)
    for _ in range(5):
        c.same(model)
    assert L.config_of(model).value.value.value.value.value.width == 2
    for _ in range(50):
        c.same(model)
    assert len(str(keeping.record_of(model))) < 5000
    with pytest.raises(NoConfigError, match="went through builders more than"):
        L.config_of(model)


def test_a_chain_beyond_reason_builds_and_has_no_config() -> None:
    chain: Any = c.Box(1)
    for _ in range(3000):
        chain = c.Box(chain)
    model = c.Model(c.Encoder(2), head=chain)
    for one in (chain, model):
        with pytest.raises(NoConfigError, match="nested too deeply"):
            L.config_of(one)
    assert L.config_of(model.encoder).width == 2


def test_scalars_tensors_and_importable_things_are_never_tagged() -> None:
    before = len(keeping._beside)
    for value in (1, "a", None, torch.ones(2), torch.relu, nn.Linear, plain.Color.RED, len, [1], (1,)):
        c.same(value)
    assert len(keeping._beside) == before


def test_a_closure_made_by_a_builder_is_known_by_it() -> None:
    config = L.trace(lambda: c.same(c.make_schedule(3)), as_dict=True)
    assert config["value"] == {"_target_": "configurables.make_schedule", "steps": 3}
    live = c.make_schedule(3)
    with L.untraced():
        assert L.config_of(live).steps == 3
    assert L.trace(lambda: c.pair(live, live), as_dict=True)["right"] == "${.left}"


def test_live_modules_used_twice_are_written_once() -> None:
    encoder = c.Encoder(2)
    with pytest.warns(UserWarning, match="weights"):
        config = L.trace(lambda: c.Model(encoder, head=encoder), as_dict=True)
    assert config["head"] == "${.encoder}"


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: nn.Linear(1, 1), "Decorate its class"),
        (lambda: c.PlainChild(2), "only its base Encoder is configurable"),
        (lambda: 5, "weakly referenced"),
        (lambda: copy.copy(c.Box(1)), "copy or was unpickled"),
        (lambda: pickle.loads(pickle.dumps(c.Box(1))), "copy or was unpickled"),
        (lambda: pickle.loads(pickle.dumps(c.Left())), "copy or was unpickled"),
        (lambda: copy.deepcopy(c.NoInit()), "copy or was unpickled"),
    ],
)
def test_what_is_not_known_says_why(make: Any, why: str) -> None:
    with pytest.raises(NoConfigError, match=why):
        L.config_of(make())


def test_a_diamond_of_decorated_bases_is_recorded_once() -> None:
    made = c.Diamond(left=5, right=7)
    assert (made.left, made.right) == (5, 7)
    assert L.config_of(made) == {"_target_": "configurables.Diamond", "left": 5, "right": 7}
    assert L.trace(lambda: c.Diamond(left=1, right=2)) == {
        "_target_": "configurables.Diamond",
        "left": 1,
        "right": 2,
    }


def test_bases_with_a_new_of_their_own() -> None:
    assert c.Text("a") == "A" and c.Triple(1, 2, 3) == (1, 2, 3)
    assert L.instantiate(L.trace(lambda: c.Text("a"))) == "A"
    assert L.instantiate(L.trace(lambda: c.Triple(1, b=2, c=3))) == (1, 2, 3)


def test_pydantic_models() -> None:
    made = c.Validated(size="3")  # type: ignore[arg-type]
    assert made.size == 3 and made.model_dump() == {"size": 3, "names": []}
    assert L.trace(lambda: c.Validated(size=3)) == {"_target_": "configurables.Validated", "size": 3}
    assert L.instantiate(L.trace(lambda: c.Validated(size=3))) == c.Validated(size=3)
    assert L.config_of(c.Validated(size=4)).size == 4


def test_a_metaclass_with_a_call_of_its_own() -> None:
    assert L.trace(lambda: c.Registered(3)) == {"_target_": "configurables.Registered", "size": 3}
    assert L.config_of(c.Registered(3)).size == 3


def test_an_init_replaced_after_decoration_is_the_one_that_binds() -> None:
    original = c.Box.__init__
    try:
        c.Box.__init__ = lambda self, renamed: setattr(self, "item", renamed)  # type: ignore[method-assign,assignment,misc]
        assert L.trace(lambda: c.Box(3)) == {"_target_": "configurables.Box", "renamed": 3}
    finally:
        c.Box.__init__ = original  # type: ignore[method-assign]


def test_an_abstract_class_is_refused_by_python_also_in_a_trace() -> None:
    for call in (lambda: c.Abstract(1), lambda: L.trace(lambda: c.Abstract(1))):
        with pytest.raises(TypeError, match="abstract"):
            call()


def test_a_changed_dataclass_does_not_give_its_old_config() -> None:
    settings = c.Mutable(1)
    assert L.config_of(settings).width == 1
    settings.width = 9
    with pytest.raises(NoConfigError, match="stale: width"):
        L.config_of(settings)


def test_defaults_can_be_pinned_for_live_objects() -> None:
    config = L.config_of(c.Encoder(2), defaults="pin", as_dict=True)
    assert config["depth"] == 2 and config["act"]["path"] == "torch.nn.modules.activation.ReLU"


def test_recording_can_be_switched_off(tmp_path: Path) -> None:
    with pytest.raises(NoConfigError):
        L.config_of(c.Silent(1))
    code = "import configurables as c; from tl_integrations import language as L; L.config_of(c.Encoder(2))"
    env = {
        "PYTHONPATH": f"{Path(__file__).parent}:{Path(__file__).parents[2]}",
        "PATH": "",
        "TL_INTEGRATIONS_RECORD": "0",
    }
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert "recording is off" in done.stderr


def test_records_are_plain_data() -> None:
    def walk(value: Any) -> None:
        assert type(value) in (dict, list, str, int, float, bool, bytes, type(None)), value
        for item in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
            walk(item)

    walk(
        keeping.record_of(
            c.Model(c.Encoder(2, act=nn.GELU), head=[torch.float32, (1, c.Box(1)), plain.Settings(1)])
        )
    )
