"""Fixtures and settings of all tests: the links to the package, one Spark session, and the order of parallel runs."""

from __future__ import annotations

import gc
import logging
import os
import sys
from collections.abc import Generator, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any

import links
import pytest
import structlog
from frozen_heap import FrozenHeap
from hypothesis import HealthCheck, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


# The duration of an example depends on the load of the machine.
settings.register_profile("callboard", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("callboard")

# Sessions of Spark are short here: Java's optimizing compiler would use more CPU than it saves.
JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"

HEAP = FrozenHeap()

SPARK = "tests/spark/"
LONGEST_FIRST = ("spark", "simulation", "crashes", "node", "log", "bench")


def pytest_configure(config: pytest.Config) -> None:
    os.environ.setdefault("SPARK_SUBMIT_OPTS", JAVA_OPTIONS)
    if not hasattr(config, "workerinput"):  # once per run, not in every worker
        links.create_links()
    if not config.pluginmanager.has_plugin("callboard"):  # a checkout that is not installed has no entry points
        config.pluginmanager.register(import_module("callboard.runtime.testing.plugin.plugin"), "callboard")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With several processes, begin with the folders that take longest, so that all processes end together."""
    if config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        rank = {folder: number for number, folder in enumerate(LONGEST_FIRST)}
        items.sort(key=lambda item: rank.get(item.path.parent.name, len(rank)))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Nothing that collection makes is garbage."""
    gc.disable()
    try:
        return (yield)
    finally:
        HEAP.watch()
        HEAP.restore()
        gc.enable()


@pytest.fixture(autouse=True)
def _frozen_heap() -> Iterator[None]:
    """Tests and what they measure may freeze and unfreeze the heap."""
    yield
    HEAP.restore()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object:
    """As ``--dist loadfile``, but one process runs all tests with Spark: each Java process has to warm up."""
    if config.getoption("dist") != "loadfile":
        return None
    scheduler: Any = import_module("xdist.scheduler").LoadFileScheduling(config, log)
    file_of = scheduler._split_scope
    scheduler._split_scope = lambda nodeid: SPARK if nodeid.startswith(SPARK) else file_of(nodeid)
    return scheduler


@pytest.fixture
def kafka_python_sockets() -> Iterator[None]:
    """Collects sockets that kafka-python has left in this test, which ignores them, and not in a later one."""
    yield
    gc.collect()


@pytest.fixture(autouse=True)
def _reset_structlog() -> Iterator[None]:
    """``capture_logs`` leaves structlog configured, which would change where an embedded coordinator logs."""
    yield
    structlog.reset_defaults()


@pytest.fixture(scope="session")
def java() -> None:
    """Tests with Spark are skipped without Java, and fail in CI."""
    from callboard.spark.session import missing_java

    if (reason := missing_java()) is not None:
        if os.environ.get("CI"):
            pytest.fail(f"in CI the tests with Spark are not optional: {reason}")
        pytest.skip(reason)


@pytest.fixture(scope="session")
def spark(java: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One session for all tests of a process. Its time zone differs from that of the data."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONPATH", links.python_path())
        # A logger of PySpark gives its format to each handler it gets, also to pytest's, for all later tests.
        patch.setattr("pyspark.logger.PySparkLogger.addHandler", logging.Logger.addHandler)
        builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
        builder = builder.config("spark.ui.showConsoleProgress", "false").config("spark.log.level", "ERROR")
        builder = builder.config("spark.python.unix.domain.socket.enabled", "true")
        builder = builder.config("spark.sql.shuffle.partitions", "2")
        # Each query runs once: to compile it to Java takes longer than to interpret it. Tests of commands compile.
        builder = builder.config("spark.sql.codegen.wholeStage", "false")
        builder = builder.config("spark.sql.codegen.factoryMode", "NO_CODEGEN")
        builder = builder.config("spark.local.dir", str(tmp_path_factory.mktemp("spark")))
        session = builder.config("spark.sql.session.timeZone", "Asia/Tokyo").getOrCreate()
        yield session
        session.stop()
