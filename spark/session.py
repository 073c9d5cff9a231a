"""The Spark session of Callboard's commands: little output, UTC, the running Python; or the one of spark-submit."""

from __future__ import annotations

import logging
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
from typing import TYPE_CHECKING, Any

from ..runtime.common.errors import StartError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MIN_JAVA_VERSION = 17
SHORT_MESSAGE_MAX_CHARS = 400  # Spark's error messages can be pages long
LOCAL = "local[*]"
MASTERS = ("local", "spark://", "k8s://")

LOGGING = Path(__file__).with_name("log4j2.properties")
QUIET_DAEMON = f"{__package__}.quiet_daemon"

_PACKAGES = re.compile(r"(?:[a-z]\w*\.)+(?=[A-Z])")
_VERSION = re.compile(r'version "([0-9]+)')

# Over TCP a Python worker waits 40 ms for each reply; over a Unix socket there is no such delay.
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "8",
    "spark.python.unix.domain.socket.enabled": "true",
}


def missing_java() -> str | None:
    """Why Spark cannot start on this machine; None if it can."""
    java_home = os.environ.get("JAVA_HOME")
    java = shutil.which(Path(java_home, "bin", "java") if java_home else "java")
    if java is None:
        description = "found none at JAVA_HOME or on the PATH"
        return f"Spark needs Java {MIN_JAVA_VERSION} or newer: {description}; sudo apt install openjdk-17-jre-headless"
    output = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = _VERSION.search(output)
    if version is None or int(version[1]) < MIN_JAVA_VERSION:
        return (
            f"Spark needs Java {MIN_JAVA_VERSION} or newer: {java} reports {output.strip()[:80]!r}; install one and set"
            " JAVA_HOME"
        )
    return None


def check_environment(master: str | None) -> None:
    """Raise StartError if Java is missing, or for a master URL that Spark would refuse with a long stack trace."""
    if master is not None and master != "yarn" and not master.startswith(MASTERS):
        raise StartError(f"bad --master '{master}': expected yarn, or a URL that begins with {', '.join(MASTERS)}")
    if (reason := missing_java()) is not None:
        raise StartError(reason)


def is_spark_error(error: Exception) -> bool:
    """Whether Spark raised the error. Does not import Spark: an error of Spark has imported it."""
    return any(each.__module__.partition(".")[0] in ("pyspark", "py4j") for each in type(error).__mro__)


def short_message(error: Exception) -> str:
    """One line of a Spark error: the first of a Java error, with its root cause, or the last of a Python error.

    The first line of a Java error often says only that a task has failed.
    """
    lines = [line.strip() for line in str(error).splitlines() if line.strip() and not line.startswith("\tat ")]
    error_lines = [line for line in lines if "Error: " in line or "Exception: " in line or line.startswith("[")]
    is_first = type(error).__module__.startswith("py4j.") or error_lines[:1] == lines[:1]
    message = (error_lines or lines or ["failed without an error message"])[0 if is_first else -1].removeprefix(": ")
    cause = _root_cause(str(error))
    if not cause or cause in message:
        return message[:SHORT_MESSAGE_MAX_CHARS]
    return f"{message[: SHORT_MESSAGE_MAX_CHARS - len(cause)]}; the cause: {cause}"


def _root_cause(text: str) -> str:
    """The last of the causes in a stack trace of Java; of an error in Python, its last line. Empty if there is none."""
    _, found, trace = text.rpartition("\nCaused by: ")
    lines = trace.partition("\n\tat ")[0].strip().splitlines() if found else []
    return _PACKAGES.sub("", lines[-1].strip(), count=1)[: SHORT_MESSAGE_MAX_CHARS // 2] if lines else ""


@contextmanager
def session(
    name: str,
    master: str | None = None,
    settings: Mapping[str, str] = MappingProxyType({}),
    java_options: Sequence[str] = (),
) -> Iterator[SparkSession]:
    """A session, which is stopped at the end unless it existed before. Raises StartError as ``check_environment`` does.

    ``master`` as for spark-submit; None means the one given by spark-submit, or else this machine. ``settings``:
    additional Spark settings. ``java_options``: for a session on this machine.
    """
    from pyspark.sql import SparkSession

    running = SparkSession.getActiveSession()
    if running is not None:
        yield running
        return
    check_environment(master)
    warnings.filterwarnings("ignore", category=FutureWarning, module=r"pyspark\..*")
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    with without_log_of_py4j():
        spark = _builder(name, master, settings, java_options).getOrCreate()
        try:
            yield spark
        finally:
            spark.stop()


@contextmanager
def without_log_of_py4j() -> Iterator[None]:
    """Py4J logs each error that it raises with a stack trace; of Ctrl-C these are fifty lines."""

    def is_of_another(record: logging.LogRecord) -> bool:
        return "py4j" not in Path(record.pathname).parts

    logging.getLogger().addFilter(is_of_another)  # it writes to the root logger
    try:
        yield
    finally:
        logging.getLogger().removeFilter(is_of_another)


def _builder(name: str, master: str | None, settings: Mapping[str, str], java_options: Sequence[str]) -> Any:
    from pyspark.sql import SparkSession

    builder: Any = SparkSession.builder
    builder = builder.appName(name)
    if master is not None or "PYSPARK_GATEWAY_PORT" not in os.environ:
        builder = builder.master(master or LOCAL)
        if (master or LOCAL).startswith("local"):
            os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # without it Spark looks for an address and warns
            builder = builder.config("spark.python.daemon.module", QUIET_DAEMON)
            options = " ".join([f"-Dlog4j2.configurationFile={LOGGING.as_uri()}", *java_options])
            builder = builder.config("spark.driver.extraJavaOptions", options)
    progress = {"spark.ui.showConsoleProgress": str(sys.stderr.isatty()).lower()}
    for key, value in {**SETTINGS, **progress, **settings}.items():
        builder = builder.config(key, value)
    return builder
