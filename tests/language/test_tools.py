"""Looking at configs and working with them."""

from typing import Any

import configurables as c
import plain_builders as plain
import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from torch import nn

from tl_integrations import language as L
from tl_integrations.errors import ConfigError, VerifyError


def model_config() -> DictConfig:
    def thunk() -> Any:
        shared = c.Encoder(2, act=nn.GELU)
        return c.Model(
            shared, head=(shared, {"a": [1.5, "${x}"]}), blocks=[c.Encoder(3), c.Encoder(width=4, depth=1)]
        )

    config: DictConfig = L.trace(thunk)
    return config


def test_diff_names_keys_and_values() -> None:
    after = model_config()
    after.blocks[0].width = 9
    after.blocks[1].pop("depth")
    after.extra = True
    found = L.diff(model_config(), after)
    assert [change.kind for change in found] == ["changed", "removed", "added"]
    assert str(found) == "~ blocks[0].width: 3 -> 9\n- blocks[1].depth: 1\n+ extra: True"
    assert not L.diff(after, after) and str(L.diff(after, after)) == "no difference"


@pytest.mark.parametrize(
    ("a", "b", "same"),
    [
        ({"x": float("nan")}, {"x": float("nan")}, True),
        ({"x": 1}, {"x": True}, False),
        ({"x": 0.0}, {"x": -0.0}, False),
        ({"x": 1, "y": 2}, {"y": 2, "x": 1}, True),
        ({"x": [1]}, {"x": [1, 2]}, False),
        ({"_target_": "a.B", "k": 1}, {"_target_": "a.C", "k": 1}, False),
        ({"x": None}, {}, False),
    ],
)
def test_diff_compares_as_written(a: Any, b: Any, same: bool) -> None:
    assert bool(L.diff(a, b)) is not same


def test_explain_names_the_line_of_every_value() -> None:
    text = L.explain(model_config())
    lines = {line.split(" = ")[0]: line for line in text.splitlines()}
    assert "test_tools.py:18" in lines["encoder.width"] and "= 2" in lines["encoder.width"]
    assert "test_tools.py:20" in lines["blocks[1].depth"]
    assert "head._args_[0][1].a[0]" in lines
    assert "test_tools.py:20" in L.explain(model_config().blocks[0])
    assert L.explain({"a": {"b": 1}}) == "a.b = 1"


def test_select_changes_every_node_of_a_target() -> None:
    config = model_config()
    chosen = L.select(config, c.Encoder)
    assert chosen.keys == ["encoder", "blocks[0]", "blocks[1]"] and len(chosen) == 3
    chosen.set(depth=7, act=nn.Tanh)
    assert [config.encoder.depth, config.blocks[1].depth] == [7, 7]
    assert L.instantiate(config).blocks[0].act is nn.Tanh
    with pytest.raises(ConfigError, match=r"takes no 'dept'.*'depth'"):
        chosen.set(dept=1)
    listed = {"_target_": "configurables.same", "value": 1}
    L.select(listed, c.same).set(value=[1])
    assert L.instantiate(listed) == [1] and type(L.instantiate(listed)) is list


def test_to_python_gives_source_that_traces_to_the_same_config() -> None:
    config = model_config()
    source = L.to_python(config)
    assert "from configurables import Encoder" in source
    space: dict[str, Any] = {}
    exec(compile(source, "<source>", "exec"), space)
    assert not L.diff(L.trace(space["build"]), config)
    assert isinstance(space["build"](), c.Model)


def test_to_python_writes_values_as_python() -> None:
    value = [
        (),
        (1,),
        {1, 2},
        set(),
        {None: 1},
        "${a}",
        float("inf"),
        plain.Color.RED,
        torch.float32,
        nn.ReLU,
        b"x",
        -0.0,
    ]
    source = L.to_python(L.trace(lambda: c.same(value)))
    space: dict[str, Any] = {}
    exec(compile(source, "<source>", "exec"), space)
    assert repr(space["build"]()) == repr(value)


def test_verify_passes_for_an_honest_builder_and_gives_the_config() -> None:
    assert L.verify(c.Encoder, 3, depth=4) == L.trace(lambda: c.Encoder(3, depth=4))


def test_verify_finds_a_builder_that_depends_on_more_than_its_arguments() -> None:
    c.SURPRISE.clear()
    with pytest.raises(VerifyError, match=r"part .*Linear\(in_features=1.*in_features=2") as caught:
        L.verify(c.surprising, 1)
    assert "state weight" in str(caught.value)


def test_config_texts_are_in_order_and_reload(tmp_path: Any) -> None:
    config = model_config()
    L.save_config(config, tmp_path / "a.yaml")
    assert list(tmp_path.iterdir()) == [tmp_path / "a.yaml"]
    loaded = L.load_config(tmp_path / "a.yaml")
    assert isinstance(loaded, DictConfig) and loaded == config
    assert (
        L.to_yaml(loaded)
        == (tmp_path / "a.yaml").read_text()
        == L.to_yaml(OmegaConf.load(tmp_path / "a.yaml"))
    )
    assert L.load_config(tmp_path / "a.yaml", as_dict=True) == OmegaConf.to_container(config)


def test_a_failed_save_leaves_nothing_behind(tmp_path: Any) -> None:
    (tmp_path / "a.yaml").mkdir()
    with pytest.raises(OSError):
        L.save_config({"a": 1}, tmp_path / "a.yaml")
    assert [path.name for path in tmp_path.iterdir()] == ["a.yaml"]
    with pytest.raises(TypeError, match="YAML cannot hold"):
        L.save_config({"a": object()}, tmp_path / "b.yaml")
    assert not (tmp_path / "b.yaml").exists()
