"""`report`, which every benchmark gives its rows to; a run that measures stores and renders them."""

from collections.abc import Iterator
from typing import Any

import pytest
import results
from interleaving import is_measuring
from pluggy import Result
from results import Report

FAILED = pytest.StashKey[BaseException]()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[Any]) -> Iterator[None]:
    outcome: Result[pytest.TestReport] = yield  # type: ignore[assignment]
    if call.when == "call" and call.excinfo is not None and outcome.get_result().failed:
        item.stash[FAILED] = call.excinfo.value


@pytest.fixture
def report(request: pytest.FixtureRequest) -> Iterator[Report]:
    """Takes the rows of the test, which `SECTION` of its module says where to put."""
    report = Report(request.module.SECTION, request.node.nodeid)
    yield report
    if not is_measuring(request):
        return
    if error := request.node.stash.get(FAILED, None):
        report.ended(request.node.name, error)
    if report.rows:
        results.store(report.rows, report.test)


def pytest_sessionfinish(session: pytest.Session) -> None:
    if session.config.getoption("--benchmark-enable") and results.STORED.exists():
        import rendering

        rendering.write()
