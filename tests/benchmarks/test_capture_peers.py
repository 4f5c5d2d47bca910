"""The same tensors kept by other libraries, in the same process and in turn; torchlens in its own process,
since it leaves torch's functions wrapped."""

import json
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from interleaving import assert_ratio, interleave, is_measuring, table
from reference_models import made
from test_capture_cost import NAMED, SAVED, hooked
from torch import nn

import tl_integrations as tl

MODELS = ("mlp20", "resnet", "conv8", "gpt2-4l", "lstm")


def by_captum(model: nn.Module, names: list[str]) -> Callable[[Any], Any]:
    """captum's LayerActivation on the same modules."""
    from captum.attr import LayerActivation

    activation = LayerActivation(model, [model.get_submodule(name) for name in names])
    return lambda x: activation.attribute(x)


def by_nnsight(model: nn.Module, names: list[str]) -> Callable[[Any], Any]:
    """nnsight's trace on the same modules; it keeps references, not copies."""
    from nnsight import NNsight

    watched = NNsight(model)

    def run(x: Any) -> Any:
        kept = []
        with watched.trace(x):
            for name in names:
                kept.append(watched.get(name).output.save())
        return kept

    return run


def peers(name: str) -> dict[str, Callable[[], object]]:
    """Every way that works for this model; what fails on it is left out."""
    model, x = made(name)
    taken = tl.record(model, x, save=NAMED[name], graph=False)
    names = list(dict.fromkeys(record.address for record in taken))
    function = tl.func(SAVED[name])
    cases: dict[str, Callable[[], object]] = {
        "plain": lambda: model(x),
        "hooks with clone": lambda: hooked(model, names, x),
        "modules, graph=False": lambda: tl.record(model, x, save=NAMED[name], graph=False),
        "record, graph=False": lambda: tl.record(model, x, save=function, graph=False),
        "record": lambda: tl.record(model, x, save=function),
    }
    for label, make in (("captum", by_captum), ("nnsight", by_nnsight)):
        try:
            run = make(model, names)
            run(x)
        except Exception as error:
            print(f"{label} on {name}: {type(error).__name__}: {str(error)[:100]}")
        else:
            cases[label] = lambda run=run: run(x)  # type: ignore[misc]
    return cases


@pytest.mark.parametrize("name", MODELS)
def test_other_libraries_on_the_same_tensors(name: str, request: pytest.FixtureRequest) -> None:
    if not is_measuring(request):
        model, x = made(name)
        assert len(tl.record(model, x, save=NAMED[name], graph=False)) > 0
        return
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        print("\n" + table(name, interleave(peers(name), rounds=15)))


TORCHLENS = """
import json, sys, warnings
warnings.simplefilter("ignore")
sys.path[:0] = json.loads(sys.argv[1])
import torch
torch.set_num_threads(1)
from interleaving import interleave
from reference_models import made
import tl_integrations as tl
import torchlens
model, x = made("mlp20")
rounds = int(sys.argv[2])
cases = {
    "ours": lambda: tl.record(model, x, save=tl.func("relu"), graph=False),
    "torchlens": lambda: torchlens.fastlog.record(model, x, save=torchlens.func("relu")),
}
print(json.dumps(interleave(cases, rounds=rounds, warmup=1)["torchlens"].ratio))
"""


def times_faster_than_torchlens(rounds: int) -> float:
    """How many times longer the same record takes with torchlens."""
    here = Path(__file__).parent
    paths = json.dumps([str(here), str(here.parent)])
    command = [sys.executable, "-c", TORCHLENS, paths, str(rounds)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert run.returncode == 0, run.stderr[-2000:]
    return float(run.stdout.strip().splitlines()[-1])


def test_a_record_is_eight_times_faster_than_with_torchlens(request: pytest.FixtureRequest) -> None:
    pytest.importorskip("torchlens")
    if not is_measuring(request):
        pytest.skip("starts a process with torchlens; measured by make bench")
    factor = times_faster_than_torchlens(7)
    print(f"\ntorchlens record / ours, mlp20: {factor:.1f}x")
    assert_ratio(lambda: 8 / factor, 1.0)
