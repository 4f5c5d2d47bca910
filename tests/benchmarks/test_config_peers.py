"""The same tree of 501 objects as a config by ours, OmegaConf and Hydra, hydra-zen and fiddle."""

from collections.abc import Callable
from typing import Any

import config_classes as k
import fiddle
import hydra_zen
import pytest
import yaml
from fiddle.experimental import serialization
from hydra.utils import instantiate as hydra_instantiate
from interleaving import interleave, is_measuring
from omegaconf import OmegaConf
from results import Report

from tl_integrations import language as L

SECTION = "config"
TABLE = "501 objects, ratios to ours"
Ways = dict[str, Callable[[], object]]

ZenLeaf = hydra_zen.builds(k.PlainLeaf, populate_full_signature=True)
ZenBlock = hydra_zen.builds(k.PlainBlock, populate_full_signature=True)
ZenRoot = hydra_zen.builds(k.PlainRoot, populate_full_signature=True)


def ours(blocks: int) -> Any:
    return k.Root(
        [k.Block(i, [k.Leaf(j, width=64, rate=0.1, name="relu") for j in range(9)]) for i in range(blocks)]
    )


def zen(blocks: int) -> Any:
    """Config objects of classes that `builds` made once: how hydra-zen is meant to be used."""
    return ZenRoot(
        [ZenBlock(i, [ZenLeaf(j, width=64, rate=0.1, name="relu") for j in range(9)]) for i in range(blocks)]
    )


def zen_each(blocks: int) -> Any:
    """`builds` for each node, as a config written in place has it."""
    builds = hydra_zen.builds
    found = []
    for i in range(blocks):
        leaves = [builds(k.PlainLeaf, index=j, width=64, rate=0.1, name="relu") for j in range(9)]
        found.append(builds(k.PlainBlock, index=i, leaves=leaves))
    return builds(k.PlainRoot, blocks=found)


def making(blocks: int) -> Ways:
    return {
        "ours, a dict": lambda: traced(blocks),
        "hydra-zen, config objects": lambda: zen(blocks),
        "hydra-zen, builds() for each": lambda: zen_each(blocks),
        "fiddle, auto_config": lambda: k.fiddle_root.as_buildable(blocks),
    }


def traced(blocks: int) -> Any:
    return L.trace(lambda: ours(blocks), as_dict=True)


def making_for_hydra(blocks: int) -> Ways:
    plain, objects = traced(blocks), zen(blocks)
    return {
        "ours, a DictConfig": lambda: L.trace(lambda: ours(blocks)),
        "OmegaConf.create of a dict": lambda: OmegaConf.create(plain),
        "hydra-zen, objects to a DictConfig": lambda: OmegaConf.structured(objects),
    }


def building(blocks: int) -> Ways:
    plain, objects, buildable = traced(blocks), zen(blocks), k.fiddle_root.as_buildable(blocks)
    config = OmegaConf.create(plain)
    return {
        "ours, built": lambda: L.instantiate(plain),
        "Hydra": lambda: hydra_instantiate(config),
        "hydra-zen": lambda: hydra_zen.instantiate(objects),
        "fiddle": lambda: fiddle.build(buildable),
    }


def writing(blocks: int) -> Ways:
    plain, objects, buildable = traced(blocks), zen(blocks), k.fiddle_root.as_buildable(blocks)
    config = OmegaConf.create(plain)
    return {
        "ours, YAML": lambda: L.to_yaml(plain),
        "OmegaConf, YAML": lambda: OmegaConf.to_yaml(config),
        "PyYAML in C, YAML": lambda: yaml.dump(plain, Dumper=yaml.CSafeDumper, sort_keys=False),
        "hydra-zen, YAML": lambda: hydra_zen.to_yaml(objects),
        "fiddle, JSON": lambda: serialization.dump_json(buildable),
    }


QUESTIONS: dict[str, Callable[[int], Ways]] = {
    "make it": making,
    "make it for Hydra": making_for_hydra,
    "build the objects": building,
    "write it as text": writing,
}


@pytest.mark.parametrize("question", QUESTIONS)
def test_configs_by_other_libraries(question: str, request: pytest.FixtureRequest, report: Report) -> None:
    measuring = is_measuring(request)
    found = QUESTIONS[question](50 if measuring else 1)
    report.timings(TABLE, question, interleave(found, rounds=5 if measuring else 2, warmup=1))


def first_leaf(root: Any) -> dict[str, Any]:
    return vars(root.blocks[0].leaves[4])


def test_every_library_builds_the_same_objects() -> None:
    expected = {"index": 4, "width": 64, "rate": 0.1, "name": "relu"}
    assert first_leaf(L.instantiate(traced(1))) == expected
    assert first_leaf(fiddle.build(k.fiddle_root.as_buildable(1))) == expected
    assert first_leaf(hydra_zen.instantiate(zen(1))) == expected
    assert first_leaf(hydra_zen.instantiate(zen_each(1))) == expected


def test_hydra_zen_writes_what_ours_writes() -> None:
    theirs = yaml.safe_load(hydra_zen.to_yaml(ZenLeaf(4, width=64, rate=0.1, name="relu")))
    own = L.trace(lambda: k.Leaf(4, width=64, rate=0.1, name="relu"), as_dict=True)
    assert theirs.pop("_target_").endswith("PlainLeaf") and own.pop("_target_").endswith("Leaf")
    assert theirs == own
