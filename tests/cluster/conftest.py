"""Fixtures: each engine of a store, and the servers behind them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from callboard.runtime.cluster.engines.objects import ObjectStore
from callboard.runtime.cluster.engines.postgres import PostgresStore

from .engine_cases import EngineCase, NetworkCase, memory_case, simulated_case, skip_or_fail, url_case
from .named_bucket import VARIABLE, Bucket, named_bucket
from .object_server import CREDENTIALS, ObjectServer, missing_object_server
from .postgres_server import PostgresServer, missing_postgres

ENGINES = ("memory", "simulated", "folder", "local", "postgres", "objects")
NETWORK_ENGINES = ("postgres", "objects")
LIMIT_S = 0.5


@pytest.fixture(params=ENGINES)
def engine(request: pytest.FixtureRequest) -> EngineCase:
    """Every engine that a cluster can use, the one in memory, and the simulated one."""
    case: EngineCase = request.getfixturevalue(f"{request.param}_engine")
    return case


@pytest.fixture
def memory_engine() -> EngineCase:
    return memory_case()


@pytest.fixture
def simulated_engine() -> EngineCase:
    return simulated_case()


@pytest.fixture
def folder_engine(tmp_path: Path) -> EngineCase:
    return url_case("folder", tmp_path.as_uri())


@pytest.fixture
def local_engine(tmp_path: Path) -> EngineCase:
    return url_case("local", tmp_path.as_uri().replace("file:", "local:"))


@pytest.fixture
def postgres_engine(postgres: PostgresServer) -> EngineCase:
    return url_case("postgres", postgres.url())


@pytest.fixture
def objects_engine(objects: Bucket) -> EngineCase:
    return url_case("objects", objects.url(), announces=False)


@pytest.fixture(params=NETWORK_ENGINES)
def network_engine(request: pytest.FixtureRequest) -> NetworkCase:
    """Every engine that is reached over TCP."""
    case: NetworkCase = request.getfixturevalue(f"{request.param}_network")
    return case


@pytest.fixture
def postgres_network(postgres: PostgresServer) -> NetworkCase:
    def make(port: int, client: str) -> PostgresStore:
        return PostgresStore(postgres.url(port=port), client, LIMIT_S)

    return NetworkCase("postgres", postgres.port, make)


@pytest.fixture
def objects_network(objects: Bucket) -> NetworkCase:
    if not objects.port:
        pytest.skip(f"the server of the bucket that {VARIABLE} names is not on this machine, or speaks TLS")
    return NetworkCase("objects", objects.port, lambda port, client: ObjectStore(objects.url(port=port), LIMIT_S))


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A server for all tests of a process."""
    if (reason := missing_postgres()) is not None:
        skip_or_fail(reason)
    with PostgresServer({"fsync": "off"}) as server:  # no test here stops the machine
        yield server


@pytest.fixture(scope="session")
def objects() -> Iterator[Bucket]:
    """A bucket for all tests of a process: the one that somebody named, or that of a simulator."""
    if (bucket := named_bucket()) is not None:
        yield bucket
        asyncio.run(bucket.clear())
        return
    if (reason := missing_object_server()) is not None:
        skip_or_fail(reason)
    with pytest.MonkeyPatch.context() as patch, ObjectServer() as server:
        for name, value in CREDENTIALS.items():
            patch.setenv(name, value)
        yield server
