"""One thread, quiet frameworks, the same random numbers in every run."""

import gc
from collections.abc import Iterator

import hypothesis
import pytest
import torch

hypothesis.settings.register_profile("suite", deadline=None, max_examples=50, derandomize=True)
hypothesis.settings.load_profile("suite")


@pytest.fixture(autouse=True, scope="session")
def one_thread() -> None:
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def the_same_random_numbers() -> None:
    torch.manual_seed(0)


@pytest.fixture
def no_collector() -> Iterator[None]:
    """Without the garbage collector what is in a reference cycle stays."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture(autouse=True)
def nothing_of_ours_stays_on_torch() -> Iterator[None]:
    yield
    assert torch._C._len_torch_function_stack() == 0, "a function mode was left on torch"
