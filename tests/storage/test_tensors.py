"""What is asked of many tensors at once is what is asked of each."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tl_integrations.storage.tensors import all_plain, all_storable, plain, to_host, unstorable

pytestmark = pytest.mark.filterwarnings("ignore:.*(beta|prototype|deprecated).*:UserWarning")


class Wrapped(Tensor):
    """A subclass, whose values may be anything."""


KINDS: dict[str, Callable[[], Tensor]] = {
    "plain": lambda: torch.ones(2, 3),
    "parameter": lambda: nn.Parameter(torch.ones(2)),
    "buffer": lambda: nn.Buffer(torch.ones(2)),
    "empty": lambda: torch.ones(0, 3),
    "scalar": lambda: torch.tensor(1.0),
    "with a graph": lambda: torch.ones(2, requires_grad=True) * 2,
    "turned": lambda: torch.ones(2, 3).t(),
    "expanded": lambda: torch.ones(1, 3).expand(2, 3),
    "conjugated": lambda: torch.ones(2, dtype=torch.complex64).conj(),
    "negated": lambda: torch.ones(2, dtype=torch.complex64).conj().imag,
    "inference": lambda: torch.inference_mode()(torch.ones)(2),
    "sparse": lambda: torch.ones(2, 2).to_sparse(),
    "compressed": lambda: torch.ones(2, 2).to_sparse_csr(),
    "nested": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]),
    "jagged": lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], layout=torch.jagged),
    "quantised": lambda: torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8),
    "meta": lambda: torch.ones(2, device="meta"),
    "subclass": lambda: torch.ones(2).as_subclass(Wrapped),
}


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_all_storable_when_each_is(kind: str) -> None:
    tensor = KINDS[kind]()
    assert all_storable([torch.ones(1), tensor]) == (unstorable(tensor) == "")


def test_a_tensor_inside_a_transform_is_not_storable() -> None:
    seen: list[bool] = []

    def inside(x: Tensor) -> Tensor:
        seen.extend([all_storable([x]), unstorable(x) == ""])
        return x

    torch.vmap(inside)(torch.ones(2, 3))
    assert seen == [False, False]


@pytest.mark.parametrize("kind", KINDS)
def test_tensors_are_all_plain_when_each_is_left_as_it_is(kind: str) -> None:
    tensor = KINDS[kind]()
    if unstorable(tensor):
        assert not all_storable([tensor]), "never asked whether it is plain"
        return
    assert all_plain([torch.ones(1), tensor]) == (plain(tensor) is tensor)


@pytest.mark.parametrize("kind", KINDS)
def test_on_the_host_no_tensor_has_a_graph(kind: str) -> None:
    tensor = KINDS[kind]()
    if not unstorable(tensor):
        moved = to_host([None, tensor])
        assert moved[0] is None and moved[1] is not None and not moved[1].requires_grad
        assert (moved[1] is tensor) == (not tensor.requires_grad)
