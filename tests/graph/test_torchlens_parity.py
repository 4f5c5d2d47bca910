"""What our trace says of a model agrees with torchlens 2.36.1, op by op.

Compared for every op, in order: label (and with it the function's type and the grouping into layers),
parents, module calls, shape, parameters, FLOPs; inputs and outputs by number. What torchlens says lies in a
file that `make_torchlens_golden.py` writes.

Where we differ on purpose (torchlens / here: reason):

- buffers: a node for every version and after every write / one node: a version is no tensor of the graph.
- FLOPs of a call with several results: at every result / at the first: totals would count it twice.
- FLOPs of pooling with one size for all axes: size x output / size ** axes x output: a window's elements.
- FLOPs of dropout outside of training: 2 per element / 0: it does nothing then.
- both residual sums of a transformer block: passes of one layer / two layers: no loop, and other parents.
- a tensor read after one of its views was written: child of that write / of its own op, as its shape is that
  op's; the write is an op on the view.
- `x / y`, `x += y`: types truediv, iadd / div, add: for torch operator and method are one function.
"""

import json
from collections import defaultdict
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from graph_models import MODELS, made
from packaging.version import Version

import tl_integrations as tl

GOLDEN = Path(__file__).parents[1] / "golden" / "torchlens_2_36_1.json"
NOT_ONE_LAYER = {"gpt2": "add", "transformer": "add"}
SAME_FUNCTION = {"truediv": "div", "iadd": "add"}
WRITTEN_THROUGH_A_VIEW = {"written": {"mul_1_4:1": "setitem_1_2:1"}}
FROM_TRANSFORMERS = {"gpt2", "bert"}
OTHER_FLOPS = {"max", "max_pool2d", "dropout"}


@cache
def golden() -> dict[str, Any]:
    read: dict[str, Any] = json.loads(GOLDEN.read_text())
    return read


def is_op(label: str) -> bool:
    return label.partition("_")[0] not in ("input", "buffer", "output")


def relabelled(name: str) -> dict[str, str]:
    """torchlens' labels, computed again without the layers that it joins and we keep apart."""
    counts: dict[str, int] = defaultdict(int)
    layers: dict[str, str] = {}
    passes: dict[str, int] = defaultdict(int)
    labels: dict[str, str] = {}
    for label in (op["label"] for op in golden()[name]["ops"] if is_op(op["label"])):
        layer, _, _ = label.partition(":")
        named = layer.partition("_")[0]
        kind = SAME_FUNCTION.get(named, named)
        key = label if kind == NOT_ONE_LAYER.get(name) else layer
        if key not in layers:
            counts[kind] += 1
            layers[key] = f"{kind}_{counts[kind]}_{len(layers) + 1}"
        passes[layers[key]] += 1
        labels[label] = f"{layers[key]}:{passes[layers[key]]}"
    return labels


def comparable(name: str) -> list[dict[str, Any]]:
    labels = relabelled(name)
    known = {
        **labels,
        **{label.partition(":")[0]: new for label, new in labels.items() if label.endswith(":1")},
    }
    through = WRITTEN_THROUGH_A_VIEW.get(name, {})
    return [
        {
            **op,
            "label": labels[op["label"]],
            "parents": [
                through.get(parent, parent)
                for parent in (known.get(read, read.partition("_")[0]) for read in op["parents"])
            ],
        }
        for op in golden()[name]["ops"]
        if is_op(op["label"])
    ]


def ours(trace: "tl.Trace") -> list[dict[str, Any]]:
    full = {op.label: f"{op.layer_label}:{op.pass_index}" for op in trace.ops}
    return [
        {
            "label": full[op.label],
            "parents": [full[p] if is_op(p) else p.partition("_")[0] for p in op.parents],
            "modules": list(op.modules),
            "shape": list(op.shape),
            "parameters": op.num_params,
            "flops": op.flops_forward,
            "func": op.func_name,
        }
        for op in trace.ops
        if op.kind == "op"
    ]


@cache
def traced(name: str) -> "tl.Trace":
    if name in FROM_TRANSFORMERS and Version(version("transformers")) < Version("5.24"):
        pytest.skip("the file describes the models of transformers 5.24; older ones call other functions")
    model, inputs = made(name)
    return tl.trace(model, inputs)


@pytest.mark.parametrize("name", MODELS)
def test_ops_agree(name: str) -> None:
    keys = ("label", "parents", "modules", "shape", "parameters")
    expected = [{key: op[key] for key in keys} for op in comparable(name)]
    assert [{key: op[key] for key in keys} for op in ours(traced(name))] == expected


@pytest.mark.parametrize("name", MODELS)
def test_flops_agree_where_both_know(name: str) -> None:
    pairs = zip(ours(traced(name)), comparable(name), strict=True)
    apart = [
        (a["label"], a["flops"], b["flops"])
        for a, b in pairs
        if None not in (a["flops"], b["flops"]) and a["flops"] != b["flops"] and a["func"] not in OTHER_FLOPS
    ]
    assert apart == []


@pytest.mark.parametrize("name", MODELS)
def test_inputs_outputs_and_parameters_agree(name: str) -> None:
    trace = traced(name)
    theirs = [op["label"].partition("_")[0] for op in golden()[name]["ops"]]
    assert len(trace.input_layers) == theirs.count("input")
    assert len(trace.output_layers) == theirs.count("output")
    assert trace.num_params == golden()[name]["parameters"]
