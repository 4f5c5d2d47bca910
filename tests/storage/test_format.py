"""The format stays what it is: golden bundles byte for byte, the schema, and strict JSON."""

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from bundles import bundle
from golden import make_bundles
from hypothesis import example, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

import tl_integrations.storage
from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage import growing, load
from tl_integrations.storage.strict_json import dump, number_text, parse, read_number
from tl_integrations.storage.tlspec import line, read_line
from tl_integrations.storage.verification import verify

GOLDEN = Path(make_bundles.__file__).parent
SCHEMA = json.loads((Path(tl_integrations.storage.__file__).parent / "tlspec-1.schema.json").read_text())


def validator(name: str) -> Draft202012Validator:
    return Draft202012Validator(SCHEMA | {"$ref": f"#/$defs/{name}"})


@pytest.mark.parametrize(("name", "make"), make_bundles.BUNDLES.items())
def test_the_same_records_make_the_same_bytes_as_ever(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / name)
    assert_equals_golden(tmp_path / name)


@pytest.mark.parametrize("at_once", [1, 40])
def test_bytes_do_not_depend_on_how_many_are_written_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(growing, "_AT_ONCE", at_once)
    for name, make in make_bundles.BUNDLES.items():
        make(tmp_path / name)
        assert_equals_golden(tmp_path / name)


def assert_equals_golden(path: Path) -> None:
    written = {file: (path / file).read_bytes() for file in sorted(os.listdir(path))}
    golden = {
        file: (GOLDEN / path.name / file).read_bytes() for file in sorted(os.listdir(GOLDEN / path.name))
    }
    assert list(written) == list(golden)
    for file in golden:
        assert written[file] == golden[file], file


def test_the_first_bundle_of_version_1_opens_for_ever() -> None:
    recording = load(GOLDEN / "v1_full.tlspec")
    assert recording.steps == [0, 100, 200] and len(recording) == 12
    assert recording.outcome.status == "halted" and recording.config is not None
    assert recording.config["model"]["text"] == "1e5"
    assert torch.equal(recording.at(200)["fft_1_2"].out, torch.tensor([1 + 2j]))
    assert recording.at(200)["relu_1_1"].moment.generation == 1
    assert recording.at(0)["relu_1_1"].grad is not None
    assert list(recording.graphs.values()) == [make_bundles.GRAPH]
    assert verify(GOLDEN / "v1_full.tlspec").whole


@pytest.mark.parametrize("name", make_bundles.BUNDLES)
def test_golden_bundles_fit_the_schema(name: str) -> None:
    manifest, lines = (GOLDEN / name / file for file in ("manifest.json", "index.jsonl"))
    validator("manifest").validate(json.loads(manifest.read_text()))
    for text in lines.read_text().splitlines():
        validator("line").validate(json.loads(text))


@pytest.mark.parametrize(
    "wrong",
    [{"shape": [-1]}, {"dtype": "float7"}, {"step": 1.5}, {"sum": "md5:00"}, {"record": None}, {"kind": "x"}],
)
def test_the_schema_refuses_lines_that_the_reader_refuses(tmp_path: Path, wrong: dict[str, object]) -> None:
    first = (bundle(tmp_path / "run.tlspec", [0]) / "index.jsonl").read_text().splitlines()[0]
    assert validator("line").is_valid(json.loads(first))
    assert not validator("line").is_valid(json.loads(first) | wrong)


def test_every_line_kind_and_file_is_described_in_the_docstring() -> None:
    from tl_integrations.storage import tlspec

    described = tlspec.__doc__ or ""
    assert all(f"    {kind} " in described for kind in ("record", "grad", "op", "module", "commit", "rewind"))
    properties = (
        SCHEMA["$defs"]["record"]["properties"].keys() | SCHEMA["$defs"]["manifest"]["properties"].keys()
    )
    assert all(f"`{name}`" in described for name in properties - {"kind", "histogram", "statistics", "check"})


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 100_000,
        b'{"a":' * 100 + b"1" + b"}" * 100,
        b'{"a":1,"a":2}',
        b"NaN",
        b"[Infinity]",
        b"1e999",
        b"9" * 5000,
        b"\xff\xfe",
        b"\xef\xbb\xbf{}",
        b"{} {}",
        b"",
        b'"\x00"',
    ],
    ids=repr,
)
def test_json_with_a_second_meaning_is_refused(text: bytes) -> None:
    with pytest.raises(BundleCorruptError, match="it is not"):
        parse(text, "it")


def test_deep_brackets_inside_texts_are_no_nesting() -> None:
    assert parse(dump(["[" * 1000, '\\"[[' * 100]).encode(), "it") == ["[" * 1000, '\\"[[' * 100]


@example(sys.float_info.max)
@given(st.floats(allow_nan=True, allow_infinity=True))
def test_every_number_survives_its_text(number: float) -> None:
    back = read_number(parse(dump(number_text(number)).encode(), "it"))
    assert back == number or (back != back and number != number)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(
    st.dictionaries(
        st.text(max_size=6).filter(lambda key: key != "check"), json_values, min_size=1, max_size=5
    )
)
def test_a_line_is_read_as_it_was_written(content: dict[str, object]) -> None:
    assert read_line(line(content).encode().rstrip(b"\n"), "it") == content


@given(st.integers(0, 200), st.integers(0, 7))
def test_a_flipped_bit_in_a_line_is_always_noticed(at: int, bit: int) -> None:
    content = bytearray(line({"kind": "record", "label": "relu_1_2", "shape": [3, 4]}).encode().rstrip(b"\n"))
    content[at % len(content)] ^= 1 << bit
    with pytest.raises(BundleCorruptError):
        read_line(bytes(content), "it")
