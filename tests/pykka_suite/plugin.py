"""A pytest plugin for pykka's own test suite: its ``runtime`` becomes ours, its registry the one of our system.

It runs in a process of its own (see ``test_pykka_suite.py``), which says by environment variables on what the actors
run, where the tests themselves run, and where the outcomes go.
"""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pykka
import pytest
import uvloop

from callboard.actors.base import Actor, set_current_dispatcher
from callboard.runtime.engine.reply import Reply
from callboard.runtime.engine.system import System

DISPATCHER = "PYKKA_SUITE_DISPATCHER"  # "threads-N", "asyncio" or "uvloop"
INSIDE = "PYKKA_SUITE_INSIDE"  # set: the tests are called on the loop's own thread
OUTCOMES = "PYKKA_SUITE_OUTCOMES"  # the file for them

RUNTIME = "runtime"  # the suite's fixture that says which actors are tested
TEST_LIMIT_S = 60


def system_on(name: str) -> System:
    """A system for the whole run, with its threads in the background."""
    if name.startswith("threads-"):
        return System.on_threads(int(name.removeprefix("threads-")))
    loop = asyncio.new_event_loop() if name == "asyncio" else uvloop.new_event_loop()
    threading.Thread(target=loop.run_forever, name="loop", daemon=True).start()
    return System.on_loop(loop)


class Outcomes:
    """Each test's outcome and whether it used our runtime; written when all is done."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._uses_ours: dict[str, bool] = {}
        self._said: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        self._uses_ours = {item.nodeid: RUNTIME in item.fixturenames for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self._said[report.nodeid] = str(crash.message if crash else report.longrepr).partition("\n")[0]
        elif report.when == "call" or not report.passed:
            self._said[report.nodeid] = report.outcome if report.passed else f"{report.when} {report.outcome}"

    def pytest_sessionfinish(self) -> None:
        rows = [(name, self._said.get(name, "not run"), ours) for name, ours in self._uses_ours.items()]
        self._path.write_text(json.dumps(rows))


class Inside:
    """Calls each test on the thread of the actors' loop, and waits for it outside."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

        async def body() -> None:
            pyfuncitem.obj(**arguments)

        asyncio.run_coroutine_threadsafe(body(), self._loop).result(TEST_LIMIT_S)
        return True


def impatient(system: System) -> dict[str, type]:
    """Events and futures that say at once when a wait for them would hold up the actor that has to set them."""

    class ImpatientEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if not self.is_set():
                system.dispatcher.check_blocking_wait()
            return super().wait(timeout)

    class ImpatientReply(Reply):
        def __init__(self) -> None:
            super().__init__(system.dispatcher)

    return {"event_class": ImpatientEvent, "future_class": ImpatientReply}


class Ours:
    """Puts our classes into the suite's description of a runtime."""

    def __init__(self, classes: dict[str, type]) -> None:
        self._classes = classes

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
        if fixturedef.argname == RUNTIME:
            request.param = dataclasses.replace(request.param, name="callboard", actor_class=Actor, **self._classes)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Before anything of the suite is imported."""
    system = system_on(os.environ[DISPATCHER])
    set_current_dispatcher(system.dispatcher)  # the suite knows of no system: it calls Actor.start() and Actor()
    pykka.ActorRegistry = system.registry  # type: ignore[misc,assignment]
    plugins = early_config.pluginmanager
    plugins.register(Outcomes(Path(os.environ[OUTCOMES])))
    if os.environ.get(INSIDE):
        plugins.register(Inside(system.dispatcher.loop))  # type: ignore[attr-defined]
        plugins.register(Ours(impatient(system)))
    else:
        plugins.register(Ours({"future_class": Reply}))


@pytest.fixture
def mocker() -> Iterator[SimpleNamespace]:
    """What the suite uses of pytest-mock, which pykka's tests need and ours do not."""
    patches: list[Any] = []

    def patch_object(*args: Any, **kwargs: Any) -> Any:
        patches.append(mock.patch.object(*args, **kwargs))
        return patches[-1].start()

    yield SimpleNamespace(
        Mock=mock.Mock,
        MagicMock=mock.MagicMock,
        NonCallableMock=mock.NonCallableMock,
        patch=SimpleNamespace(object=patch_object),
    )
    for patch in reversed(patches):
        patch.stop()
