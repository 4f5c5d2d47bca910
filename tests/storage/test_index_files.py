"""Bundles of more index files than a reader keeps in memory."""

from pathlib import Path

import pytest
import torch
from bundles import bundle, values

from tl_integrations.errors import BundleCorruptError
from tl_integrations.storage import load

STEPS = range(12)


@pytest.fixture
def many(tmp_path: Path) -> Path:
    return bundle(tmp_path / "run.tlspec", STEPS, shard_bytes=1)


def test_columns_that_left_the_memory_are_read_again(many: Path) -> None:
    assert len(list(many.glob("index-*.safetensors"))) > 8
    found = load(many)
    for _ in range(2):
        for number in STEPS:
            for label, tensor in values(number).items():
                assert torch.equal(found.at(number)[label].out, tensor)
    assert [record.step for record in found] == [number for number in STEPS for _ in range(3)]


def test_an_index_file_that_changed_after_opening_is_refused_when_read_again(many: Path) -> None:
    found, first = load(many), min(many.glob("index-*.safetensors"))
    content = bytearray(first.read_bytes())
    content[-1] ^= 1
    first.write_bytes(content)
    assert torch.equal(found.at(11)["relu_1_1"].out, values(11)["relu_1_1"])
    with pytest.raises(BundleCorruptError, match=first.name):
        _ = found.at(0)["relu_1_1"]


def test_an_index_file_that_is_gone_after_opening_is_a_typed_error(many: Path) -> None:
    found, first = load(many), min(many.glob("index-*.safetensors"))
    first.unlink()
    with pytest.raises(BundleCorruptError, match=first.name):
        list(found)
