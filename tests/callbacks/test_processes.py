"""Two processes under DDP: one bundle, no hang, names without a wrapper's prefix."""

import subprocess
import sys
from pathlib import Path

import pytest

import tl_integrations as tl

SCRIPT = """
import sys
import warnings
from lightning.pytorch import Trainer, seed_everything
from toy_models import LitNet, random_loader
from tl_integrations.callbacks import TraceCallback

warnings.simplefilter("ignore")
path, strategy, ranks = sys.argv[1:4]


def main():
    seed_everything(1, verbose=False)
    callback = TraceCallback(
        schedule=2, save=["net.*", "net"], storage=path, ranks="all" if ranks == "all" else [int(ranks)]
    )
    Trainer(
        accelerator="cpu", devices=2, strategy=strategy, max_steps=4, logger=False, callbacks=[callback],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    ).fit(LitNet(), random_loader(16))


if __name__ == "__main__":
    main()
"""


def run_two_processes(tmp_path: Path, strategy: str, ranks: str) -> Path:
    script, bundle = tmp_path / "train.py", tmp_path / "run.tlspec"
    script.write_text(SCRIPT)
    environment = {"PYTHONPATH": str(Path(__file__).parents[1]), "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, str(script), str(bundle), strategy, ranks],
        capture_output=True,
        text=True,
        timeout=240,
        env=environment | {"PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    return bundle


@pytest.mark.slow
def test_one_bundle_is_written_by_rank_0_of_spawned_processes(tmp_path: Path) -> None:
    recording = tl.load(run_two_processes(tmp_path, "ddp_spawn", "0"))
    assert recording.steps == [0, 2] and {record.rank for record in recording} == {0}
    names = [record.address for record in recording.at(0)]
    # The module that training_step calls is there once, whatever DDP wraps around it.
    assert names == ["net.enter", "net.norm", "net.act", "net.drop", "net.leave", "net"]


@pytest.mark.slow
def test_all_ranks_keep_their_own_shard_of_the_batch(tmp_path: Path) -> None:
    """Case C35."""
    recording = tl.load(run_two_processes(tmp_path, "ddp_fork", "all"))
    first, second = (
        next(r for r in recording.at(0) if r.rank == rank and r.address == "net.enter").out for rank in (0, 1)
    )
    assert first.shape == second.shape and not (first == second).all()
