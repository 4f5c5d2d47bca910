"""Parameters sharded over two processes (FSDP2 on gloo): the local activations, or an error that says why.

Lightning's `strategy="fsdp"` wants a GPU and says so itself; its ModelParallelStrategy takes `fully_shard` on
a CPU too. Case C64.
"""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from lightning.pytorch import Trainer

import tl_integrations as tl

TRAINER = """
import sys
import warnings
from lightning.pytorch import Trainer, seed_everything
from lightning.pytorch.strategies import ModelParallelStrategy
from torch import nn
from torch.distributed.fsdp import fully_shard
from toy_models import LitNet, random_loader
from tl_integrations.callbacks import TraceCallback

warnings.simplefilter("ignore")


class Sharded(LitNet):
    def __init__(self):
        super().__init__(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2)))

    def training_step(self, batch, batch_idx):
        return nn.functional.mse_loss(self(batch[0]), batch[1])

    def configure_model(self):
        mesh = self.device_mesh["data_parallel"]
        for module in (self.net[0], self.net[2], self.net):
            fully_shard(module, mesh=mesh)


def main():
    seed_everything(1, verbose=False)
    callback = TraceCallback(
        schedule=2, save="net.*", storage=sys.argv[1], ranks="all", gradients=True, watch_nonfinite=True,
        on_error="raise",
    )
    strategy = ModelParallelStrategy(
        data_parallel_size=2, tensor_parallel_size=1, process_group_backend="gloo"
    )
    Trainer(
        accelerator="cpu", devices=2, strategy=strategy, max_steps=4, logger=False, callbacks=[callback],
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
    ).fit(Sharded(), random_loader(16))


if __name__ == "__main__":
    main()
"""

PLAIN = """
import copy
import os
import sys
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Shard, distribute_tensor
import tl_integrations as tl
from tl_integrations.callbacks.parameters import ParameterWatch
from tl_integrations.capture.sinks import MemorySink
from tl_integrations.errors import UnsupportedModelError


def main(rank, store):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    mesh = init_device_mesh("cpu", (2,))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    twin = copy.deepcopy(model)
    for module in (model[0], model[2], model):
        fully_shard(module, mesh=mesh)
    sink = MemorySink()
    monitor = tl.StepMonitor(model, schedule=2, sinks=[sink], gradients=True, watch_nonfinite=True)
    torch.manual_seed(rank)
    x = torch.randn(4, 8)
    with monitor.step(0):
        model(x).sum().backward()
    hidden = twin[0](x)
    assert [record.address for record in sink.recording] == ["0", "1", "2"]
    assert torch.allclose(sink.recording["0"].out, hidden, atol=1e-6)
    assert torch.allclose(sink.recording["2"].grad, torch.ones(4, 2))
    assert len(list(tl.record(model, x, save=tl.func("linear")))) == 2
    whole = torch.arange(16.0).reshape(4, 4)
    (record,) = tl.record(nn.ReLU(), distribute_tensor(whole, mesh, [Shard(0)]), save=tl.func("relu"))
    assert record.shape == (4, 4) and torch.equal(record.out, whole[2 * rank : 2 * rank + 2])
    for refused in (lambda: tl.StepMonitor(model, replay=True), lambda: ParameterWatch(model)):
        try:
            refused()
        except UnsupportedModelError as error:
            assert "wait for" in str(error)
        else:
            raise SystemExit("what would need the other processes was not refused")
    dist.destroy_process_group()


if __name__ == "__main__":
    torch.multiprocessing.spawn(main, args=(sys.argv[1],), nprocs=2)
"""


def run(folder: Path, script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    (folder / "train.py").write_text(script)
    paths = {"PYTHONPATH": str(Path(__file__).parents[1]), "PATH": "/usr/bin:/bin", "HOME": str(folder)}
    return subprocess.run(
        [sys.executable, str(folder / "train.py"), *arguments],
        capture_output=True,
        text=True,
        timeout=240,
        env=paths | {"OMP_NUM_THREADS": "1"},
        check=False,
    )


needs_shards_on_a_cpu = pytest.mark.skipif(
    not hasattr(torch.cpu.Stream, "record_event"), reason="this torch cannot run fully_shard on a CPU"
)


@pytest.mark.slow
@needs_shards_on_a_cpu
def test_a_trainer_with_sharded_parameters_keeps_each_ranks_activations_and_gradients(tmp_path: Path) -> None:
    done = run(tmp_path, TRAINER, str(tmp_path / "run.tlspec"))
    assert done.returncode == 0, done.stderr[-3000:]
    recording = tl.load(tmp_path / "run.tlspec")
    assert recording.steps == [0, 2]
    for step in (0, 2):
        found = {(record.rank, record.address): record for record in recording.at(step)}
        assert set(found) == {(rank, f"net.{layer}") for rank in (0, 1) for layer in (0, 1, 2)}
        assert not torch.equal(found[0, "net.0"].out, found[1, "net.0"].out)
        assert all(record.grad is not None and record.out.shape[0] == 4 for record in found.values())


@pytest.mark.slow
@needs_shards_on_a_cpu
def test_a_plain_loop_gives_local_shards_and_refuses_what_needs_the_other_processes(tmp_path: Path) -> None:
    """Case C64."""
    done = run(tmp_path, PLAIN, str(tmp_path / "store"))
    assert done.returncode == 0, done.stderr[-3000:]


def test_lightning_itself_refuses_its_fsdp_strategy_on_a_cpu() -> None:
    with pytest.raises(ValueError, match="requires a GPU accelerator"):
        Trainer(accelerator="cpu", devices=2, strategy="fsdp", logger=False)
