"""The pytest plugin: a coordinator for each test that asks for one, its clock, and a timeline where a test fails.

pytest imports this file at every start, so it imports nothing of ours before a fixture is used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .moving import BlockingTime
    from .rigged import RiggedCoordinator, RiggedThread

    Rigged = RiggedThread | RiggedCoordinator

MARKER = "callboard"
OPTION = "--callboard-timeline"
IN_USE = pytest.StashKey["RiggedThread"]()
NAME_MAX = 150  # of a file, with what the test's parameters add


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("callboard", "Callboard, a Kafka group coordinator for tests")
    group.addoption(OPTION, metavar="DIR", help="write the timeline of each test that fails to a JSON file in DIR")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(topics=None, data=None, **settings): what this test's coordinator is given: topics as a dict of "
        "names and partitions; data=True for a folder under tmp_path instead of memory; Kafka's settings",
    )


@pytest.fixture
def coordinator(request: pytest.FixtureRequest) -> Iterator[RiggedThread]:
    """A fresh coordinator on a thread of its own, listening on a free port of 127.0.0.1, everything in memory."""
    from .rigged import RiggedCoordinator

    with RiggedCoordinator.in_thread(**_asked(request)) as running:
        request.node.stash[IN_USE] = running
        yield running
        for fault in running.faults.all():
            request.node.user_properties.append(("callboard_fault", repr(fault)))


@pytest.fixture
def kafka_bootstrap(coordinator: RiggedThread) -> str:
    """What any Kafka client takes as its bootstrap servers."""
    return coordinator.bootstrap


@pytest.fixture
def clock(coordinator: RiggedThread) -> BlockingTime:
    """The coordinator's clock: ``clock.advance(45)`` lets 45 seconds pass there."""
    return coordinator.clock


def _asked(request: pytest.FixtureRequest) -> dict[str, Any]:
    """What the test's marks say; the nearest mark wins."""
    asked: dict[str, Any] = {"data": None}
    for mark in reversed(list(request.node.iter_markers(MARKER))):
        if mark.args:
            raise pytest.UsageError(f"@pytest.mark.{MARKER}{mark.args}: expected names, as in topics={{'jobs': 3}}")
        asked.update(mark.kwargs)
    if asked.get("data") is True:
        asked["data"] = request.getfixturevalue("tmp_path") / "callboard"
    elif asked["data"] is False:
        asked["data"] = None
    return asked


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    for shared in _from_fixtures(item):
        if shared is not item.stash.get(IN_USE, None):
            shared.timeline.begins(item.name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for running in _in_use(item):
            _tell(report, running, item)
    if report.when == "teardown" and IN_USE in item.stash:
        del item.stash[IN_USE]  # pytest keeps the item to the end of the run, and so all that it holds
    return report


def _in_use(item: pytest.Item) -> list[Rigged]:
    """The plugin's coordinator, and those of the user's own fixtures, of any scope."""
    own = item.stash.get(IN_USE, None)
    return [*([own] if own else []), *(one for one in _from_fixtures(item) if one is not own)]


def _from_fixtures(item: pytest.Item) -> list[Rigged]:
    rigged = sys.modules.get(f"{__package__}.rigged")
    if rigged is None:  # so there is none
        return []
    kinds = (rigged.RiggedThread, rigged.RiggedCoordinator)
    values: dict[str, Any] = getattr(item, "funcargs", None) or {}
    return list({id(value): value for value in values.values() if isinstance(value, kinds)}.values())


def _tell(report: pytest.TestReport, running: Rigged, item: pytest.Item) -> None:
    report.sections.append(("Callboard timeline", running.timeline.text()))
    if faults := running.faults.all():
        report.sections.append(("Callboard faults", "\n".join(map(repr, faults))))
    folder = item.config.getoption(OPTION, None)
    if folder:
        _write(Path(folder), item.nodeid, running.timeline.json())


def _write(folder: Path, node_id: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "_", node_id)[-NAME_MAX:]
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
