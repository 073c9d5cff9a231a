"""Fixtures for tests with real clients: the library, a server (or somebody else's), and the company of one test."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from .company import Company
from .server import ServerProcess
from .stage import LIBRARIES

# With this set to HOST:PORT the same tests run against that broker, for example a real Kafka, and start no server.
BOOTSTRAP = os.environ.get("CALLBOARD_TEST_BOOTSTRAP")


@pytest.fixture(params=LIBRARIES)
def library(request: pytest.FixtureRequest) -> str:
    """The client library of this run."""
    return str(request.param)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ServerProcess]:
    """A server of our own, which the test may stop, kill and restart."""
    if BOOTSTRAP:
        pytest.skip("needs a server of its own to restart; CALLBOARD_TEST_BOOTSTRAP names another's")
    with ServerProcess(tmp_path) as server:
        yield server


@pytest.fixture
def bootstrap(request: pytest.FixtureRequest) -> str:
    """The address of the broker under test."""
    if BOOTSTRAP:
        return BOOTSTRAP
    server: ServerProcess = request.getfixturevalue("server")
    return server.bootstrap


@pytest.fixture
def company(bootstrap: str, tmp_path: Path) -> Iterator[Company]:
    """The clients of one test, with a group and a topic that nobody else has; all are gone when it ends."""
    name = uuid.uuid4().hex[:8]
    with ExitStack() as closing:
        yield Company(bootstrap, tmp_path, f"group-{name}", f"topic-{name}", closing)
