"""Taking a config apart at its swappable sub-builders."""

from typing import Any

import pytest

from tl_integrations.errors import ConfigError
from tl_integrations.launch.splitting import GroupOption, split_options

BODY: dict[str, Any] = {
    "_target_": "m.Net",
    "depth": 3,
    "norm": {"_target_": "m.Norm", "eps": 0.1},
    "encoder": {"_target_": "m.Enc", "act": {"_target_": "m.Act"}, "width": 8},
}


def option(body: dict[str, Any] = BODY, **changes: Any) -> GroupOption:
    return GroupOption(**{"group": "model", "name": "net", "body": body, **changes})


def test_a_split_moves_the_subtree_into_a_group_of_its_own() -> None:
    parent, norm = split_options(option(), {"norm": "batch"})
    assert (norm.group, norm.name, norm.body) == ("model/norm", "batch", BODY["norm"])
    assert "norm" not in parent.body, "a swap would merge its keys into the new option"
    assert parent.body["defaults"] == ["_self_", {"norm": "batch"}]
    assert BODY["norm"] == {"_target_": "m.Norm", "eps": 0.1}, "the body that was given is left alone"


def test_a_dotted_split_reaches_into_a_sub_builder() -> None:
    parent, act = split_options(option(), {"encoder.act": "relu"})
    assert (act.path, act.body) == ("model/encoder/act/relu", {"_target_": "m.Act"})
    assert parent.body["encoder"] == {"_target_": "m.Enc", "width": 8}
    assert parent.body["defaults"] == ["_self_", {"encoder/act": "relu"}]


def test_a_choice_inside_a_choice_belongs_to_the_inner_one() -> None:
    parent, encoder, act = split_options(option(), {"encoder": "small", "encoder.act": "relu"})
    assert parent.body["defaults"] == ["_self_", {"encoder": "small"}]
    assert encoder.body == {"defaults": ["_self_", {"act": "relu"}], "_target_": "m.Enc", "width": 8}
    assert act.path == "model/encoder/act/relu"


def test_a_package_of_the_parent_carries_over() -> None:
    _, norm = split_options(option(package="nets.main"), {"norm": "batch"})
    assert norm.package == "nets.main.norm"


def test_without_a_group_the_split_is_a_group_at_the_top() -> None:
    _, norm = split_options(option(group=""), {"norm": "batch"})
    assert norm.path == "norm/batch"


@pytest.mark.parametrize("path", ["nrm", "depth", "encoder.width", "depth.x", "encoder.act.x"])
def test_a_split_that_names_no_sub_builder_is_refused_with_what_there_is(path: str) -> None:
    with pytest.raises(ConfigError, match="names no sub-builder") as caught:
        split_options(option(), {path: "x"})
    assert "found" in str(caught.value)


def test_near_names_help_with_a_misspelled_split() -> None:
    with pytest.raises(ConfigError, match="Closest: 'norm'"):
        split_options(option(), {"norn": "x"})


@pytest.mark.parametrize(
    "body",
    [
        {**BODY, "head": "${.norm}"},
        {**BODY, "head": {"_target_": "m.Head", "norm": "${..norm}"}},
        {**BODY, "blocks": [{"_target_": "m.B", "norm": "${...norm}"}]},
        {**BODY, "norm": {"_target_": "m.Norm", "inner": "${..encoder}"}},
        {**BODY, "norm": {"_target_": "m.Norm", "inner": "${..encoder.act}"}},
    ],
    ids=["sibling", "uncle", "from a list", "out of the split", "deep out of the split"],
)
def test_an_object_used_inside_and_outside_the_split_is_refused(body: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="tears one object apart"):
        split_options(option(), {"norm": "batch"}, shared=body)


@pytest.mark.parametrize(
    "body",
    [
        {**BODY, "norm": {"_target_": "m.Norm", "size": "${..depth}"}},
        {**BODY, "norm": {"_target_": "m.Norm", "inner": {"_target_": "m.I"}, "again": "${.inner}"}},
        {**BODY, "head": "${.encoder}"},
        {**BODY, "norm": {"_target_": "m.Norm", "secret": "${oc.env:HOME}", "far": "${seed}"}},
    ],
    ids=["a plain value outside", "all inside", "all outside", "absolute and resolver"],
)
def test_references_that_a_swap_cannot_break_are_kept(body: dict[str, Any]) -> None:
    _, norm = split_options(option(body), {"norm": "batch"})
    assert norm.body == body["norm"]
