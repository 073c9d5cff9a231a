"""A pytest plugin for pykka's own test suite: it replaces the suite's ``runtime`` and pykka's registry.

``test_pykka_suite.py`` runs it in a subprocess. Environment variables select the dispatcher of the actors, the thread
of the tests and the file of the outcomes.
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
OUTCOMES = "PYKKA_SUITE_OUTCOMES"  # the file of the outcomes

RUNTIME = "runtime"  # the suite's fixture that selects the classes to test
TEST_LIMIT_S = 60


def system_on(name: str) -> System:
    """A system for the whole run, with its threads in the background."""
    if name.startswith("threads-"):
        return System.on_threads(int(name.removeprefix("threads-")))
    loop = asyncio.new_event_loop() if name == "asyncio" else uvloop.new_event_loop()
    threading.Thread(target=loop.run_forever, name="loop", daemon=True).start()
    return System.on_loop(loop)


class Outcomes:
    """The outcome of each test and whether it used the actors of this project, written at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._uses_our_actors: dict[str, bool] = {}
        self._results: dict[str, str] = {}

    def pytest_collection_modifyitems(self, items: list[pytest.Function]) -> None:
        self._uses_our_actors = {item.nodeid: RUNTIME in item.fixturenames for item in items}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            self._results[report.nodeid] = str(crash.message if crash else report.longrepr).partition("\n")[0]
        elif report.when == "call" or not report.passed:
            self._results[report.nodeid] = report.outcome if report.passed else f"{report.when} {report.outcome}"

    def pytest_sessionfinish(self) -> None:
        rows = [
            (name, self._results.get(name, "not run"), uses_our_actors)
            for name, uses_our_actors in self._uses_our_actors.items()
        ]
        self._path.write_text(json.dumps(rows))


class Inside:
    """Calls each test on the thread of the actors' loop, and waits for it on the main thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    @pytest.hookimpl(tryfirst=True)
    def pytest_pyfunc_call(self, pyfuncitem: pytest.Function) -> bool:
        arguments = {name: pyfuncitem.funcargs[name] for name in pyfuncitem._fixtureinfo.argnames}

        async def body() -> None:
            pyfuncitem.obj(**arguments)

        asyncio.run_coroutine_threadsafe(body(), self._loop).result(TEST_LIMIT_S)
        return True


def non_blocking_classes(system: System) -> dict[str, type]:
    """Events and futures that raise if a wait for them would block the actor that has to set them."""

    class CheckedEvent(threading.Event):
        def wait(self, timeout: float | None = None) -> bool:
            if not self.is_set():
                system.dispatcher.check_blocking_wait()
            return super().wait(timeout)

    class SystemReply(Reply):
        def __init__(self) -> None:
            super().__init__(system.dispatcher)

    return {"event_class": CheckedEvent, "future_class": SystemReply}


class ReplaceRuntime:
    """Replaces the classes of the suite's ``runtime`` fixture."""

    def __init__(self, classes: dict[str, type]) -> None:
        self._classes = classes

    @pytest.hookimpl(tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any], request: Any) -> None:
        if fixturedef.argname == RUNTIME:
            request.param = dataclasses.replace(request.param, name="callboard", actor_class=Actor, **self._classes)


@pytest.hookimpl(tryfirst=True)
def pytest_load_initial_conftests(early_config: pytest.Config) -> None:
    """Create the system before any module of the suite is imported."""
    system = system_on(os.environ[DISPATCHER])
    set_current_dispatcher(system.dispatcher)  # the suite uses Actor.start() and Actor(), not a System
    pykka.ActorRegistry = system.registry  # type: ignore[misc,assignment]
    plugins = early_config.pluginmanager
    plugins.register(Outcomes(Path(os.environ[OUTCOMES])))
    if os.environ.get(INSIDE):
        plugins.register(Inside(system.dispatcher.loop))  # type: ignore[attr-defined]
        plugins.register(ReplaceRuntime(non_blocking_classes(system)))
    else:
        plugins.register(ReplaceRuntime({"future_class": Reply}))


@pytest.fixture
def mocker() -> Iterator[SimpleNamespace]:
    """The part of pytest-mock's fixture that pykka's tests use; the project does not install pytest-mock."""
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
