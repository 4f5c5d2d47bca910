"""Write what torchlens says of the models in `graph_models.py` to a JSON file.

It runs apart from the tests because torchlens replaces functions of torch for the rest of its process:

    python tests/graph/make_torchlens_golden.py
"""

import json
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torchlens

sys.path.insert(0, str(Path(__file__).parents[1]))

from graph_models import MODELS, made

GOLDEN = Path(__file__).parents[1] / "golden" / "torchlens_2_36_1.json"


def described(op: Any) -> dict[str, Any]:
    flops = op.flops_forward
    return {
        "label": op.label,
        "parents": list(op.parents),
        "modules": [f"{call[0]}:{call[1]}" if isinstance(call, tuple) else str(call) for call in op.modules],
        "shape": list(op.shape),
        "func": op.func_name,
        "parameters": op.num_params,
        "flops": None if flops is None else int(flops),
    }


def main() -> None:
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    golden: dict[str, Any] = {}
    for name in MODELS:
        model, inputs = made(name)
        trace = torchlens.trace(model, inputs)
        golden[name] = {
            "ops": [described(op) for op in trace.layer_list],
            "layers": list(trace.layer_labels),
            "parameters": int(trace.num_params),
        }
    rows = ",\n".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in golden.items())
    GOLDEN.write_text(f"{{\n{rows}\n}}\n")


if __name__ == "__main__":
    main()
