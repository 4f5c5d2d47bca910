"""Records as they are remembered of a step that went to a storage."""

from dataclasses import fields, replace
from typing import Any

import pytest
import torch
from bundles import record

from tl_integrations.capture.events import Histogram, Moment, Record
from tl_integrations.capture.records import without_tensors

NOT_DEFAULT: dict[str, Any] = {
    "moment": Moment(step=3),
    "modules": ("a:1",),
    "shape": (2,),
    "dtype": torch.int8,
    "statistics": {"mean": 0.5},
    "histogram": Histogram(edges=(0.0, 1.0), counts=(1,), minimum=0.0, maximum=0.0, total=0.0, squares=0.0),
}


def full() -> Record:
    """Every field has another value than its default."""
    told = record(torch.ones(2), grad=torch.ones(2), **NOT_DEFAULT)
    for field in fields(Record):
        if getattr(told, field.name) == field.default:
            value: Any = "text" if field.default is None or isinstance(field.default, str) else 7
            told = replace(told, **{field.name: value})
    return told


def test_a_record_without_tensors_says_all_the_rest() -> None:
    bare, told = without_tensors(full()), full()
    assert bare == replace(told, payload=None, gradient=None)
    assert hash(bare.label) and repr(bare).endswith("not kept>")
    with pytest.raises(AttributeError):
        bare.label = "other"  # type: ignore[misc]
