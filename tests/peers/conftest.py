"""Fixtures for tests with real clients: the library, a server (or another broker), and the clients of one test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from real_kafka.kafka import KafkaUnavailable, jars, missing

from .group_clients import GroupClients
from .peer import LIBRARIES
from .server import ServerProcess

# With this set to HOST:PORT the same tests run against that broker, for example a real Kafka, and start no server.
BOOTSTRAP = os.environ.get("CALLBOARD_TEST_BOOTSTRAP")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """The client library of this run."""
    return str(request.param)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server that the test may stop, kill and restart."""
    if BOOTSTRAP:
        pytest.skip("needs a server that it can restart; CALLBOARD_TEST_BOOTSTRAP names another broker")
    with ServerProcess(tmp_path) as server:
        yield server


@pytest.fixture(scope="module")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """The server of all tests of a module that need none of their own."""
    with ServerProcess(tmp_path_factory.mktemp("shared-server")) as server:
        yield server


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the broker under test: of the test's own server if it has one."""
    if BOOTSTRAP:
        return BOOTSTRAP
    name = "server" if "server" in request.fixturenames else "shared_server"
    server: ServerProcess = request.getfixturevalue(name)
    return server.bootstrap


@pytest.fixture
def clients(bootstrap: str, tmp_path: Path) -> Iterator[GroupClients]:
    """The clients of one test, with their own group and topic. They are ended after the test."""
    name = uuid.uuid4().hex[:8]
    with ExitStack() as closing:
        yield GroupClients(bootstrap, tmp_path, f"group-{name}", f"topic-{name}", closing)


@pytest.fixture(scope="session")
def class_path() -> Path:
    """The folder with Kafka's jars. Without Java or Maven tests are skipped; in CI they fail."""
    try:
        reason = missing()
        if reason is None:
            return jars()
    except KafkaUnavailable as unavailable:
        reason = str(unavailable)
    if os.environ.get("CI"):
        pytest.fail(f"in CI Java's client is not optional: {reason}")
    pytest.skip(reason)
