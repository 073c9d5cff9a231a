"""Fixtures of the differential tests: a real Kafka, and Callboard with the same settings."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

import pytest
from peers.server import TEST_SETTINGS, ServerProcess

from .kafka import KafkaUnavailable, RealKafka, jars, missing
from .side_by_side import Address, SideBySide

# With this set to HOST:PORT that broker stands where our server would.
BOOTSTRAP = os.environ.get("CALLBOARD_TEST_BOOTSTRAP")


@pytest.fixture(scope="session")
def kafka_jars() -> Path:
    """What a real Kafka is started from; without Java or Maven the tests are skipped, and in CI they fail."""
    reason = missing()
    if reason is not None:
        _do_without(reason)
    try:
        return jars()
    except KafkaUnavailable as unavailable:
        _do_without(str(unavailable))


@pytest.fixture(scope="session")
def real_kafka(kafka_jars: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKafka]:
    """One real Kafka for the whole session."""
    kafka = RealKafka(tmp_path_factory.mktemp("real-kafka"))
    kafka.start()
    yield kafka
    kafka.stop()


@pytest.fixture(scope="session")
def our_address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Address]:
    """Our server, with the settings of the real one. Another real Kafka in its place tests these tests."""
    if BOOTSTRAP:
        host, _, port = BOOTSTRAP.rpartition(":")
        yield host, int(port)
        return
    settings = {**TEST_SETTINGS, "auto_create_topics_enable": "false"}
    with ServerProcess(tmp_path_factory.mktemp("our-server"), settings=settings) as server:
        yield server.host, server.port


@pytest.fixture
def side_by_side(real_kafka: RealKafka, our_address: Address) -> Iterator[SideBySide]:
    """A connection to each, for requests that go to both."""
    with SideBySide(our_address, (real_kafka.host, real_kafka.port)) as side_by_side:
        yield side_by_side


def _do_without(reason: str) -> NoReturn:
    # CI has to say so when it did not compare; a developer's machine may lack Java.
    if os.environ.get("CI"):
        pytest.fail(f"in CI the comparison with a real Kafka is not optional: {reason}")
    pytest.skip(reason)
