"""Public cases of the areas config and hydra that concern the language, each under its number."""

import functools
from pathlib import Path
from typing import Any

import case_builders as b
import numpy as np
import pytest
import torch
from omegaconf import OmegaConf
from torch import nn

from tl_integrations import language as L


def test_c07_a_tuple_argument_does_not_come_back_as_a_list_config() -> None:
    for engine in ("fast", "hydra"):
        assert L.instantiate(L.trace(lambda: b.betas_type(betas=(0.9, 0.99))), engine=engine) == "tuple"
        assert L.instantiate(L.trace(lambda: b.betas_type(betas=[0.9, 0.99])), engine=engine) == "list"


def test_c10_library_values_round_trip_or_are_refused_by_name() -> None:
    assert L.instantiate(L.trace(lambda: b.lr(np.float64(0.1)))) == 0.1
    for value in (np.ones(2), torch.ones(1)):
        assert (L.instantiate(L.trace(lambda value=value: b.lr(value))) == value).all()
    for value in (torch.float16, Path("a"), 1j, np.int32(3)):
        assert L.instantiate(L.trace(lambda value=value: b.lr(value))) == value
    with pytest.raises(TypeError, match=r"lr\(lr\)"):
        L.trace(lambda: b.lr(object()))


def test_c22_a_part_sees_its_parents() -> None:
    node = {"_target_": "torch.nn.Linear", "in_features": "${width}", "out_features": 2}
    config = OmegaConf.create({"width": 5, "model": node})
    assert L.instantiate(config.model, allow=("torch.nn.Linear",)).in_features == 5


def test_c29_local_functions_and_lambdas_are_named() -> None:
    @L.configurable
    def inner(a: int) -> int:
        return a

    with pytest.raises(TypeError, match="<locals>"):
        L.trace(lambda: inner(1))
    with pytest.raises(TypeError, match="<lambda>"):
        L.configurable(lambda a: a)


def test_c31_nested_classes_keep_their_whole_path() -> None:
    config = L.trace(lambda: b.A.B(3))
    assert config._target_.endswith("A.B") and L.instantiate(config).d == 3
    made = L.trace(lambda: b.A.make(4))
    assert made._target_.endswith("A.make") and L.instantiate(made) == ("A", 4)


def test_c40_parameters_may_have_any_name_but_hydras() -> None:
    assert tuple(L.instantiate(L.trace(lambda: b.named(1, 2, 3, 4, 5)))) == (1, 2, 3, 4, 5)
    with pytest.raises(TypeError, match="_args_"):
        L.trace(lambda: b.reserved(5))


@pytest.mark.parametrize(
    ("node", "text"),
    [
        ({"_target_": "len", "obj": "x"}, "len"),
        ({"_target_": "torch.nn.Linear", "in_features": "???", "out_features": 1}, r"\?\?\?"),
        ({"_target_": "torch.nn.Linear", "in_features": "${no.such}", "out_features": 1}, r"no\.such"),
    ],
)
def test_c41_errors_name_the_key_and_the_text(node: Any, text: str) -> None:
    for form in (dict, OmegaConf.create):
        with pytest.raises(Exception, match=text) as caught:
            L.instantiate(form({"m": {"enc": node}}), allow=("torch.nn.*",))
        assert "m.enc" in str(caught.value)


def test_c44_partials_are_unpacked_as_values_and_named_as_targets() -> None:
    config = L.trace(lambda: b.takes_class(functools.partial(torch.optim.SGD, lr=0.1)))
    made = L.instantiate(config)
    assert made([nn.Parameter(torch.ones(1))]).defaults["lr"] == 0.1
    with pytest.raises(TypeError, match="partial"):
        L.configurable(functools.partial(b.lr, 1))


def test_c65_live_objects_pass_by_identity() -> None:
    module = nn.Linear(1, 1)
    for engine in ("fast", "hydra"):
        assert L.instantiate(L.trace(lambda: b.with_object(1)), obj=module, engine=engine)[1] is module


def test_relative_references_inside_tuples_are_refused() -> None:
    assert L.trace(lambda: b.lr([L.ref("..x")]), as_dict=True)["lr"] == ["${..x}"]
    for value in ((L.ref(".x"),), {None: L.ref("..x")}, ([L.ref("..x")],)):
        with pytest.raises(TypeError, match="from the root"):
            L.trace(lambda value=value: b.lr(value))
    assert L.trace(lambda: b.lr((L.ref("x"),)), as_dict=True)["lr"]["_args_"] == [["${x}"]]


def test_a_builder_may_set_how_its_defaults_are_written() -> None:
    assert L.trace(lambda: b.always_full(1), as_dict=True) == {
        "_target_": "case_builders.always_full",
        "a": 1,
        "b": 2,
    }


def test_a_foreign_package_may_be_wrapped_whole() -> None:
    torch_nn = L.wrap(nn)
    assert repr(torch_nn) == "L.wrap(torch.nn)" and "Linear" in dir(torch_nn)
    assert L.wrap(torch_nn) is torch_nn and torch_nn.Linear(1, 2).out_features == 2
    assert torch_nn.functional.relu(torch.ones(1)).item() == 1
    with pytest.raises(TypeError, match="Wrap"):
        L.wrap(functools.partial(nn.Linear, 1))
