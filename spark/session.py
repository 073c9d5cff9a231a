"""The Spark session of our commands: quiet, in UTC, with the Python that runs now; or what spark-submit gives."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

from ..runtime.common.errors import StartError

OLDEST_JAVA = 17
SPARKS_WORDS_CHARS = 400  # of an error of Spark's, which may go on for pages
LOCAL = "local[*]"
MASTERS = ("local", "spark://", "k8s://")

LOGGING = Path(__file__).with_name("log4j2.properties")
QUIET_DAEMON = f"{__package__}.quiet_daemon"

_VERSION = re.compile(r'version "(\d+)')

# A task of a Python worker waits 40 ms for each answer over TCP, and nothing over a socket of Unix.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.unix.domain.socket.enabled": "true",
}


def missing_java() -> str | None:
    """Why Spark cannot start on this machine; None where it can."""
    home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(home, "bin", "java") if home else "java")
    if java is None:
        found = "found none at JAVA_HOME or on the PATH"
        return f"Spark needs Java {OLDEST_JAVA} or newer: {found}; sudo apt install openjdk-17-jre-headless"
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = _VERSION.search(said)
    if version is None or int(version[1]) < OLDEST_JAVA:
        return f"Spark needs Java {OLDEST_JAVA} or newer: {java} says {said.strip()[:80]!r}; install one, set JAVA_HOME"
    return None


def check(master: str | None) -> None:
    """Raise StartError without Java, and for a master that Spark would refuse, with pages of Java."""
    if master is not None and master != "yarn" and not master.startswith(MASTERS):
        raise StartError(f"bad --master '{master}': expected yarn, or what begins with {', '.join(MASTERS)}")
    if (reason := missing_java()) is not None:
        raise StartError(reason)


def in_short(error: Exception) -> str:
    """The line of an error of Spark's that says what is wrong: of Java's the first, of Python's the last."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\tat ")]
    found = [line for line in lines if "Error: " in line or "Exception: " in line or line.startswith("[")]
    is_first = isinstance(error, Py4JError) or found[:1] == lines[:1]
    words = (found or lines or ["it failed and did not say why"])[0 if is_first else -1]
    return words.removeprefix(": ")[:SPARKS_WORDS_CHARS]


@contextmanager
def session(
    name: str,
    master: str | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    java: Sequence[str] = (),
) -> Iterator[SparkSession]:
    """A session, stopped at the end unless it was there before. StartError as of ``check``.

    ``master`` as of spark-submit; None takes what spark-submit gives, and else this machine. ``settings`` of Spark's
    besides ours. ``java``: options of Java's for a session on this machine.
    """
    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    check(master)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\..*")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    spark = _builder(name, master, settings, java).getOrCreate()
    try:
        yield spark
    finally:
        spark.stop()


def _builder(name: str, master: str | None, settings: Mapping[str, str], java: Sequence[str]) -> Any:
    builder: Any = SparkSession.builder
    builder = builder.appName(name)
    if master is not None or "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(master or LOCAL)
        if (master or LOCAL).startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # else it looks for an address, and warns of it
            builder = builder.config("spark.python.daemon.module", QUIET_DAEMON)
            options = " ".join([f"-Dlog4j2.configurationFile={LOGGING.as_uri()}", *java])
            builder = builder.config("spark.driver.extraJavaOptions", options)
    progress = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    for key, value in {**SETTINGS, **progress, **settings}.items():
        builder = builder.config(key, value)
    return builder
