"""Files whose numbers, names and texts lie: typed errors before anything is allocated."""

import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from bundles import bundle, record, step, values

from tl_integrations.errors import BundleCorruptError, BundleError, BundleLimitError
from tl_integrations.storage import TlspecSink, load, recover
from tl_integrations.storage.columns import Columns, Segment
from tl_integrations.storage.plain_yaml import read_config
from tl_integrations.storage.shards import decode_table, encode_table, header, header_entry, read_header
from tl_integrations.storage.tlspec import line, read_line


def change_line(path: Path, at: int, **changes: Any) -> None:
    """Change a line of an index and seal it again, as an attacker would."""
    lines = (path / "index.jsonl").read_bytes().splitlines(keepends=True)
    lines[at] = line(read_line(lines[at].rstrip(b"\n"), "it") | changes).encode()
    (path / "index.jsonl").write_bytes(b"".join(lines))


@pytest.mark.parametrize(
    "changes",
    [
        {"dtype": "float7"},
        {"dtype": "os.system"},
        {"dtype": 3},
        {"nbytes": 1 << 61},
        {"nbytes": 15},
        {"offset": 1 << 61},
        {"offset": -8},
        {"shard": 0},
        {"shard": 10**9},
        {"sum": "xxh3-128:" + "0" * 32},
        {"sum": "md5:0"},
        {"stage": 7},
        {"modules": "abc"},
        {"label": ["x"]},
        {"statistics": {"mean": "1e9"}},
        {"histogram": {"edges": [0], "counts": [1]}},
        {"pass": True},
        {"run": -1},
        {"step": 1 << 64},
    ],
    ids=str,
)
def test_a_lie_in_a_line_costs_its_record_and_no_other(tmp_path: Path, changes: dict[str, Any]) -> None:
    path = bundle(tmp_path / "run.tlspec")
    change_line(path, 5, **changes)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    found = recover(path)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 64 << 10
    assert found.recovery.lost == 1 and len(found) == 8
    for number in range(3):
        for label, tensor in values(number).items():
            if (number, label) != (1, "relu_2_2"):
                assert torch.equal(found.at(number)[label].out, tensor)


@pytest.mark.parametrize(
    "key", ["step", "stage", "commit", "record", "run", "label", "shape", "dtype", "sum", "shard"]
)
def test_a_line_that_lacks_a_key_costs_its_record_alone(tmp_path: Path, key: str) -> None:
    path = bundle(tmp_path / "run.tlspec")
    lines = (path / "index.jsonl").read_bytes().splitlines(keepends=True)
    content = read_line(lines[5].rstrip(b"\n"), "it")
    del content[key]
    lines[5] = line(content).encode()
    (path / "index.jsonl").write_bytes(b"".join(lines))
    found = recover(path)
    assert found.recovery.lost == 1 and len(found) == 8


@pytest.mark.parametrize("record_number", [0, 7, 1 << 61])
def test_record_numbers_that_jump_confuse_nothing(tmp_path: Path, record_number: int) -> None:
    path = bundle(tmp_path / "run.tlspec")
    change_line(path, 5, record=record_number)
    found = recover(path)
    assert all(torch.equal(r.out, values(r.step or 0)[r.label or ""]) for r in found)


def one_table(**changes: np.ndarray) -> dict[str, np.ndarray]:
    columns = Columns(0)
    columns.add((0, 0, 1, -1, -1), "", '"shape":[1],"dtype":"float32"', bytes(16))
    columns.add_commit(0, 0)
    return columns.arrays() | changes


@pytest.mark.parametrize(
    "changes",
    [
        {"site": np.array([7], np.int32)},
        {"moment": np.array([-1], np.int32)},
        {"statistics_names": np.array([0], np.int32)},
        {"step": np.array([0, 1], np.int64)},
        {"step": np.array([0.5])},
        {"sum": np.zeros((1, 15), np.uint8)},
        {"commits": np.zeros(2, np.int64)},
        {"sites": np.frombuffer(b"{}", np.uint8)},
        {"sites": np.frombuffer(b"\xff", np.uint8)},
        {"statistics": np.zeros((2, 1))},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_columns_that_do_not_fit_together_are_refused(changes: dict[str, np.ndarray]) -> None:
    with pytest.raises(BundleCorruptError, match="it"):
        Segment(one_table(**changes), first=0, shard=1, where="it")
    Segment(one_table(), first=0, shard=1, where="it")


@pytest.mark.parametrize(
    ("entries", "nbytes"),
    [
        ([("r0", "F32", [2], 0, 8), ("r1", "F32", [2], 4, 12)], 12),
        ([("r0", "F32", [2], 0, 8), ("r1", "F32", [2], 16, 24)], 24),
        ([("r0", "F32", [2], 0, 8)], 9),
        ([("r0", "F32", [3], 0, 8)], 8),
        ([("r0", "F32", [1 << 61, 1 << 61], 0, 8)], 8),
        ([("r0", "F33", [2], 0, 8)], 8),
        ([("r0", "F32", [2], 0, 8), ("r0", "F32", [2], 8, 16)], 16),
        ([("r0", "F32", [2], 8, 0)], 8),
    ],
    ids=["overlap", "hole", "more", "shape", "huge", "dtype", "twice", "backwards"],
)
def test_a_safetensors_header_that_does_not_tile_its_file_is_refused(
    entries: list[tuple[str, str, list[int], int, int]], nbytes: int
) -> None:
    head = header([header_entry(*entry) for entry in entries], {})
    with pytest.raises(BundleCorruptError):
        read_header(head, len(head) + nbytes, "it")


@pytest.mark.parametrize("length", [0, 1, 7, 1 << 40, (1 << 64) - 1])
def test_a_header_length_beyond_the_file_is_refused(length: int) -> None:
    with pytest.raises(BundleCorruptError):
        read_header(length.to_bytes(8, "little") + b"{}", 10, "it")


def test_columns_of_unknown_names_are_refused() -> None:
    content = encode_table({"fine": np.zeros(1)}, {}).replace(b'"fine"', b'"../x"')
    with pytest.raises(BundleCorruptError):
        decode_table(content, "it")


@pytest.mark.parametrize(
    "text",
    [
        "a: !!python/object/apply:os.system ['true']",
        "a: 1\na: 2",
        "a: &x [1]\nb: *x",
        "&a a: *a",
        "[1, 2]",
        "a: " + "[" * 200 + "]" * 200,
        "a: [" + "1," * 200_000 + "]",
        "\x00",
        "a: b: c",
    ],
    ids=lambda text: text[:20],
)
def test_yaml_that_is_more_than_data_is_refused(text: str) -> None:
    with pytest.raises(BundleCorruptError):
        read_config(text.encode(), "it")


def test_a_metadata_file_beyond_its_limit_is_refused_unread(tmp_path: Path) -> None:
    path = bundle(tmp_path / "run.tlspec")
    with open(path / "manifest.json", "ab") as manifest:
        manifest.truncate(1 << 40)
    with pytest.raises(BundleLimitError, match="at most"):
        load(path)


@pytest.mark.parametrize("text", ["\x1b[2J", "\u202e", "a\nb", "\x00", "\ud800", "😀" * 100, "x" * 100_000])
def test_any_text_may_be_a_label(tmp_path: Path, text: str) -> None:
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        sink.write(step(0, [record(torch.ones(1), text, address=text)]))
    (only,) = load(tmp_path / "run.tlspec")
    assert only.label == text and only.address == text


def test_a_step_beyond_64_bits_is_a_typed_error(tmp_path: Path) -> None:
    with TlspecSink(tmp_path / "run.tlspec") as sink:
        sink.write(step((1 << 63) - 1, values(0)))
        sink.flush()
        sink.write(step(1 << 63, values(1)))
        with pytest.raises((BundleError, ValueError), match="2\\*\\*63"):
            sink.flush()
        sink.write(step(5, values(5)))
    assert load(tmp_path / "run.tlspec").steps == [5, (1 << 63) - 1]
