"""Hydra 1.4 deprecates the argument that 1.3 asks for; the tests pass it to both."""

import pytest


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("filterwarnings", "ignore:The version_base parameter is deprecated")
