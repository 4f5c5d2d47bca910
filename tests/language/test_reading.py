"""Reading YAML that anybody may have written."""

import time
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from tl_integrations import language as L
from tl_integrations.errors import ConfigError, ConfigTextError

BOMB = "a: &a [x,x,x,x,x,x,x,x,x,x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 10)}]\n" for i in range(9)
)

BAD: dict[str, tuple[str, str]] = {
    "object tag": ("a: !!python/object/apply:os.system ['x']", "tag .*line 1"),
    "name tag": ("a:\n  b: !!python/name:os.system", "tag .*line 2"),
    "own tag": ("a: !mine 1", "tag"),
    "tuple tag": ("a: !!python/tuple [1]", "tag"),
    "set tag": ("a: !!set {x}", "tag"),
    "timestamp tag": ("a: !!timestamp 2024-01-01", "tag"),
    "key twice": ("a: 1\nb: 2\na: 3", "'a' is there twice, line 3"),
    "key twice below": ("x:\n  a: 1\n  a: 1", "twice, line 3"),
    "number key twice": ("1: a\n1: b", "twice"),
    "alias bomb": (BOMB, "more than 100000 values"),
    "self alias": ("a: &a [*a]", "refers to itself"),
    "self alias in a mapping": ("a: &a {b: *a}", "refers to itself"),
    "unknown alias": ("a: *nope", "alias"),
    "deep list": ("a: " + "[" * 100 + "]" * 100, "64 levels"),
    "deep mapping": ("\n".join(" " * i + "a:" for i in range(100)), "64 levels"),
    "deep by aliases": (
        "".join(f"a{i}: &a{i} [[[[[[[[[[{f'*a{i - 1}' if i else 1}]]]]]]]]]]\n" for i in range(8)),
        "64 levels",
    ),
    "many nodes": ("a: [" + "1," * 100_001 + "]", "more than 100000 values"),
    "large": ("a: " + "x" * (1 << 20), "larger than 1024 KiB"),
    "documents": ("a: 1\n---\nb: 2", "several documents"),
    "list": ("- 1", "mapping"),
    "scalar": ("5", "mapping"),
    "broken": ("a: [1", "not YAML"),
    "tab": ("a:\n\tb: 1", "not YAML"),
    "control": ("a: \x07", "not YAML"),
    "null key": ("~: 1", "cannot be a key"),
    "list key": ("? [1]\n: 2", "cannot be a key|not YAML"),
    "bad int": ("a: !!int abc", "cannot be read"),
}


@pytest.mark.parametrize("name", BAD)
def test_unsafe_text_is_one_typed_error_with_its_place(name: str, tmp_path: Path) -> None:
    text, why = BAD[name]
    (tmp_path / "bad.yaml").write_text(text)
    began = time.perf_counter()
    with pytest.raises(ConfigTextError, match=f"bad.yaml: .*({why})") as caught:
        L.load_config(tmp_path / "bad.yaml")
    assert isinstance(caught.value, ConfigError | ValueError) and time.perf_counter() - began < 5


def test_bytes_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "bad.yaml").write_bytes(b"a: \xff\xfe")
    with pytest.raises(ConfigTextError, match="not UTF-8"):
        L.load_config(tmp_path / "bad.yaml")
    with pytest.raises(FileNotFoundError):
        L.load_config(tmp_path / "none.yaml")


SCALARS = """
    1e-3 1E5 +1e3 1.e3 1_0e3 yes no on off true null ~ 012 0o7 0x1F 1_000 12:30:45 2024-01-01 .5 .inf -.inf
    -0.0 1e400 010.5
""".split()


def test_scalars_are_read_as_omegaconf_reads_them(tmp_path: Path) -> None:
    text = "\n".join(f"k{index}: {scalar}" for index, scalar in enumerate(SCALARS))
    (tmp_path / "a.yaml").write_text(text)
    assert repr(L.load_config(tmp_path / "a.yaml", as_dict=True)) == repr(
        OmegaConf.to_container(OmegaConf.create(text))
    )


def test_ordinary_yaml_features_work(tmp_path: Path) -> None:
    text = "base: &b {x: 1, y: [1, 2]}\nmore:\n  <<: *b\n  x: 2\nlist: [*b, *b]\n"
    text += "text: |\n  a\n  b\nref: ${base.x}\ngap: ???\n"
    (tmp_path / "a.yaml").write_text(text)
    loaded = L.load_config(tmp_path / "a.yaml")
    assert isinstance(loaded, DictConfig) and loaded == OmegaConf.load(tmp_path / "a.yaml")
    assert loaded.ref == 1 and OmegaConf.is_missing(loaded, "gap")
    (tmp_path / "empty.yaml").write_text("# nothing\n")
    assert L.load_config(tmp_path / "empty.yaml") == {}


def test_both_dumpers_text_reads_back(tmp_path: Path) -> None:
    plain: Any = {
        "a": [
            1.0,
            1e16,
            -0.0,
            float("inf"),
            None,
            True,
            "1e-3",
            b"\x00\xff",
            {"1": 1, 2: "x", True: 3},
            [],
            {},
            "",
        ]
    }
    for text in (L.to_yaml(plain), yaml.safe_dump(plain)):
        (tmp_path / "a.yaml").write_text(text)
        assert repr(L.load_config(tmp_path / "a.yaml", as_dict=True)["a"][:6]) == repr(plain["a"][:6])
    (tmp_path / "a.yaml").write_text(L.to_yaml(plain))
    assert L.load_config(tmp_path / "a.yaml", as_dict=True) == plain
