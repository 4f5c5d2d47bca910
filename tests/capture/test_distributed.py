"""A distributed tensor's record holds this process's part and says how the whole lies."""

from collections.abc import Iterator

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import tl_integrations as tl
from tl_integrations.options import SummaryOptions


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    """Two processes, of which this is the first; nothing is sent to the other, which does not exist."""
    dist.init_process_group("fake", rank=0, world_size=2, store=FakeStore())
    try:
        yield init_device_mesh("cpu", (2,))
    finally:
        dist.destroy_process_group()


class Relu(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.act = nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        return self.act(x)


@pytest.mark.parametrize("save", ["act", "func('relu')"])
@pytest.mark.parametrize("graph", [True, False])
def test_a_sharded_activation_is_the_local_part_and_says_its_placement(
    mesh: DeviceMesh, save: str, graph: bool
) -> None:
    local = torch.randn(2, 3)
    x = DTensor.from_local(local, mesh, [Shard(0)], run_check=False).requires_grad_()
    taken = tl.record(
        Relu(), x, save=save, graph=graph, gradients=True, summaries=SummaryOptions(statistics=("max",))
    )
    (record,) = taken
    taken.output.to_local().sum().backward()
    assert record.placement == "Shard(dim=0) on a mesh of 2"
    assert record.shape == (4, 3) and type(record.out) is Tensor
    assert torch.equal(record.out, local.relu())
    assert type(record.grad) is Tensor and torch.equal(record.grad, torch.ones(2, 3))
    assert record.statistics is None or record.statistics["max"] == local.relu().max()


def test_a_replicated_tensor_says_so_and_a_plain_one_says_nothing(mesh: DeviceMesh) -> None:
    x = DTensor.from_local(torch.randn(4, 3), mesh, [Replicate()], run_check=False)
    assert tl.record(Relu(), x, save="act")[0].placement == "Replicate() on a mesh of 2"
    assert tl.record(Relu(), torch.randn(4, 3), save="act")[0].placement == ""
