"""The pytest plugin: a coordinator for each test that requests one, its clock, and the timeline of failed tests.

pytest imports this file at every start, so it imports no other module of Callboard before a fixture is used.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .harness_coordinator import HarnessCoordinator, HarnessThread
    from .virtual_time import BlockingTime

    HarnessInstance = HarnessThread | HarnessCoordinator

MARKER = "callboard"
OPTION = "--callboard-timeline"
COORDINATOR_KEY = pytest.StashKey["HarnessThread"]()
NAME_MAX = 150  # of a file, including the test's parameters


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("callboard", "Callboard, a Kafka group coordinator for tests")
    group.addoption(OPTION, metavar="DIR", help="write the timeline of each test that fails to a JSON file in DIR")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        f"{MARKER}(topics=None, data=None, **settings): options of this test's coordinator: topics as a dict of "
        "names and partitions; data=True for a folder under tmp_path instead of memory; Kafka's settings",
    )


@pytest.fixture
def coordinator(request: pytest.FixtureRequest) -> Iterator[HarnessThread]:
    """A new coordinator on a thread of its own, on a free port of 127.0.0.1, with all data in memory."""
    from .harness_coordinator import HarnessCoordinator

    with HarnessCoordinator.in_thread(**_marker_options(request)) as coordinator_in_use:
        request.node.stash[COORDINATOR_KEY] = coordinator_in_use
        yield coordinator_in_use
        for fault in coordinator_in_use.faults.all():
            request.node.user_properties.append(("callboard_fault", repr(fault)))


@pytest.fixture
def kafka_bootstrap(coordinator: HarnessThread) -> str:
    """The bootstrap servers for any Kafka client."""
    return coordinator.bootstrap


@pytest.fixture
def clock(coordinator: HarnessThread) -> BlockingTime:
    """The coordinator's clock: ``clock.advance(45)`` moves it by 45 seconds."""
    return coordinator.clock


def _marker_options(request: pytest.FixtureRequest) -> dict[str, Any]:
    """The arguments of the test's marks; the nearest mark wins."""
    options: dict[str, Any] = {"data": None}
    for mark in reversed(list(request.node.iter_markers(MARKER))):
        if mark.args:
            raise pytest.UsageError(f"@pytest.mark.{MARKER}{mark.args}: expected names, as in topics={{'jobs': 3}}")
        options.update(mark.kwargs)
    if options.get("data") is True:
        options["data"] = request.getfixturevalue("tmp_path") / "callboard"
    elif options["data"] is False:
        options["data"] = None
    return options


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_call(item: pytest.Item) -> None:
    for coordinator in _from_fixtures(item):
        if coordinator is not item.stash.get(COORDINATOR_KEY, None):
            coordinator.timeline.note_test(item.name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.failed:
        for coordinator_in_use in _in_use(item):
            _add_sections(report, coordinator_in_use, item)
    if report.when == "teardown" and COORDINATOR_KEY in item.stash:
        del item.stash[COORDINATOR_KEY]  # pytest keeps items, and so their stash, until the end of the run
    return report


def _in_use(item: pytest.Item) -> list[HarnessInstance]:
    """The plugin's coordinator, and those of other fixtures of any scope."""
    own_coordinator = item.stash.get(COORDINATOR_KEY, None)
    return [
        *([own_coordinator] if own_coordinator else []),
        *(coordinator for coordinator in _from_fixtures(item) if coordinator is not own_coordinator),
    ]


def _from_fixtures(item: pytest.Item) -> list[HarnessInstance]:
    module = sys.modules.get(f"{__package__}.harness_coordinator")
    if module is None:  # not imported: no test has used it
        return []
    kinds = (module.HarnessThread, module.HarnessCoordinator)
    values: dict[str, Any] = getattr(item, "funcargs", None) or {}
    return list({id(value): value for value in values.values() if isinstance(value, kinds)}.values())


def _add_sections(report: pytest.TestReport, coordinator_in_use: HarnessInstance, item: pytest.Item) -> None:
    report.sections.append(("Callboard timeline", coordinator_in_use.timeline.text()))
    if faults := coordinator_in_use.faults.all():
        report.sections.append(("Callboard faults", "\n".join(map(repr, faults))))
    folder = item.config.getoption(OPTION, None)
    if folder:
        _write(Path(folder), item.nodeid, coordinator_in_use.timeline.json())


def _write(folder: Path, node_id: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = re.sub(r"[^\w.-]+", "_", node_id)[-NAME_MAX:]
    (folder / f"{name}.json").write_text(text, encoding="utf-8")
