"""What torchlens takes for the same work, each question in a process of its own: torchlens leaves torch's
functions wrapped once it has been used, so whatever is timed beside it is timed before.

python torchlens_runs.py QUESTION ROUNDS [FOLDER], which prints JSON
"""

import json
import shutil
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]


def asked(question: str, rounds: int, *rest: str) -> Any:
    """The answer of a new process."""
    command = [sys.executable, str(Path(__file__)), question, str(rounds), *rest]
    run = subprocess.run(command, capture_output=True, text=True, timeout=280)
    if run.returncode != 0:
        raise RuntimeError(f"torchlens_runs.py {question}: {run.stderr.strip().splitlines()[-1]}")
    return json.loads(run.stdout.strip().splitlines()[-1])


def seconds(call: Callable[[], object], rounds: int) -> list[float]:
    call()
    times = []
    for _ in range(rounds):
        began = time.perf_counter()
        call()
        times.append(time.perf_counter() - began)
    return times


def record_by_ours(rounds: int) -> float:
    """A record on mlp20 with torchlens by one with ours, in turn."""
    import torchlens
    from interleaving import interleave
    from reference_models import made

    import tl_integrations as tl

    model, x = made("mlp20")
    cases: dict[str, Callable[[], object]] = {
        "ours": lambda: tl.record(model, x, save=tl.func("relu"), graph=False),
        "torchlens": lambda: torchlens.fastlog.record(model, x, save=torchlens.func("relu")),
    }
    return interleave(cases, rounds=rounds, warmup=1)["torchlens"].ratio


def trace_by_ours(rounds: int) -> float:
    """A trace of mlp20 with torchlens by one with ours, ours first."""
    from reference_models import made

    import tl_integrations as tl

    model, x = made("mlp20")

    def ours() -> object:
        trace = tl.trace(model, x, save=tl.func("relu"))
        return trace.ops[-1].parents, trace.ops[0].children

    mine = median(seconds(ours, rounds * 4))
    import torchlens

    theirs = seconds(lambda: torchlens.trace(model, x, save=torchlens.func("relu")), rounds)
    return median(theirs) / mine


def beside_plain(runs: dict[str, tuple[Any, Any, str]], rounds: int) -> dict[str, dict[str, list[float]]]:
    """Seconds of the plain forward, `fastlog.record` and `trace`, for each model, input and function."""
    plain = {name: seconds(lambda m=model, x=x: m(x), rounds) for name, (model, x, _) in runs.items()}  # type: ignore[misc]
    import torchlens

    found = {}
    for name, (model, x, function) in runs.items():
        save = torchlens.func(function)
        found[name] = {
            "plain": plain[name],
            "torchlens record": seconds(lambda: torchlens.fastlog.record(model, x, save=save), rounds),  # noqa: B023
            "torchlens trace": seconds(lambda: torchlens.trace(model, x, save=save), rounds),  # noqa: B023
        }
    return found


def capture(rounds: int, names: str) -> object:
    from reference_models import SAVED, made

    return beside_plain({name: (*made(name), SAVED[name]) for name in names.split(",")}, rounds)


def scaling(rounds: int, sizes: str) -> object:
    import torch
    from reference_models import ModuleChain

    chains = {size: ModuleChain(int(size)).eval() for size in sizes.split(",")}
    return beside_plain({size: (chain, torch.randn(64), "relu") for size, chain in chains.items()}, rounds)


def storage(rounds: int, folder: str) -> float:
    """Seconds of a record of mlp20 into a bundle, each a new one that is removed."""
    import torchlens
    from reference_models import made

    model, x = made("mlp20")
    times = []
    for number in range(rounds):
        path = f"{folder}/{number}.tlspec"
        began = time.perf_counter()
        torchlens.record(model, x, save=torchlens.func("relu"), storage=torchlens.to_disk(path))
        times.append(time.perf_counter() - began)
        shutil.rmtree(path)
    return median(times)


QUESTIONS: dict[str, Callable[..., object]] = {
    "record-by-ours": record_by_ours,
    "trace-by-ours": trace_by_ours,
    "capture": capture,
    "scaling": scaling,
    "storage": storage,
}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    import torch

    torch.set_num_threads(1)
    print(json.dumps(QUESTIONS[sys.argv[1]](int(sys.argv[2]), *sys.argv[3:])))
