"""A Kafka of one node (KRaft) as a child process, with its data in a temporary folder, and what is changed in it.

The broker gets the Java options of Kafka's own start script. It is stopped with its whole process group; the system
kills it if this process dies first.
"""

from __future__ import annotations

import base64
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from callboard.bench.harness import BenchError
from callboard.bench.wire import Client, api

HOST = "127.0.0.1"
START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 30.0
CHANGE_TIMEOUT_S = 30.0
PAUSE_S = 0.1
LOG_TAIL_LINES = 20
LEAST_JAVA = 17
OFFSETS_TOPIC = "__consumer_offsets"
TOPIC, SET, DELETE = 2, 0, 1  # a type of resource, and operations of IncrementalAlterConfigs
FLUSH = "flush.messages"
"""Topic setting: records that may be written without a sync."""

JVM_OPTIONS = (
    *("-server", "-Xms1G", "-Xmx1G", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
    *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
)
"""Those of kafka-server-start.sh."""

SETTINGS = """\
process.roles=broker,controller
node.id=1
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{controller_port}
advertised.listeners=PLAINTEXT://{host}:{port}
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
controller.listener.names=CONTROLLER
controller.quorum.voters=1@{host}:{controller_port}
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
"""
"""One node, and no delay before the first generation. All else is Kafka's default."""

HOW_TO_GET_ONE = f"""\
expected a Kafka to compare with: --kafka HOME, or --bootstrap-server HOST:PORT of one that runs.
To get one, which needs Java {LEAST_JAVA} or newer (Debian: apt install openjdk-17-jre-headless):
  curl -LO https://archive.apache.org/dist/kafka/4.3.1/kafka_2.13-4.3.1.tgz
  tar xzf kafka_2.13-4.3.1.tgz
  callboard bench kafka --kafka kafka_2.13-4.3.1"""

DIES_WITH_PARENT = """
import ctypes, os, sys
ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL
if os.getppid() == int(sys.argv[1]):
    os.execvp(sys.argv[2], sys.argv[2:])
"""
"""Becomes the program in its arguments, which the system kills when its parent dies: nobody else would stop it then."""

JAVA_VERSION = re.compile(r'version "(\d+)([^"]*)"')
KAFKA_JAR = re.compile(r"kafka_[\d.]+-(.+)\.jar")


class Broker(NamedTuple):
    """A broker that serves. ``pid`` is None, and the versions "not known", for one that was not started here."""

    address: str
    pid: int | None
    version: str
    java: str


@contextmanager
def broker(home: Path) -> Iterator[Broker]:
    """Start the Kafka that is installed in ``home``, on a folder in the current one. Stops it, whatever happens.

    The system's folder for temporary files is not used, since it may be in memory. Raises BenchError.
    """
    version, java = kafka_version(home), java_program()
    java_version = checked_java_version(java)
    with tempfile.TemporaryDirectory(prefix="bench-kafka-", dir=Path.cwd(), ignore_cleanup_errors=True) as name:
        folder = Path(name)
        port, controller_port = free_ports(2)
        properties, log = folder / "server.properties", folder / "kafka.log"
        properties.write_text(
            SETTINGS.format(host=HOST, port=port, controller_port=controller_port, data=folder / "data")
        )
        command = [java, *JVM_OPTIONS, "-cp", str(home.resolve() / "libs" / "*")]
        _format(command, properties)
        with process_group([*command, "kafka.Kafka", str(properties)], log) as process:
            _await_port(process, port, log)
            yield Broker(f"{HOST}:{port}", process.pid, version, java_version)


def kafka_version(home: Path) -> str:
    """By the name of its jar. Raises BenchError if ``home`` has no Kafka."""
    for path in sorted((home / "libs").glob("kafka_*.jar")):
        if found := KAFKA_JAR.fullmatch(path.name):
            return found[1]
    raise BenchError(f"{home} is not a Kafka: expected a folder libs with kafka_2.13-VERSION.jar in it")


def java_program(which: Callable[[str], str | None] = shutil.which) -> str:
    """That of JAVA_HOME, else the one on PATH. Raises BenchError."""
    if home := os.environ.get("JAVA_HOME"):
        return str(Path(home) / "bin" / "java")
    if found := which("java"):
        return found
    raise BenchError(f"Kafka needs Java {LEAST_JAVA} or newer, and there is no 'java' on PATH and no JAVA_HOME")


def checked_java_version(java: str) -> str:
    """Raises BenchError if the program cannot be run or is too old."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError as error:
        raise BenchError(f"{java} cannot be run: {error}; is JAVA_HOME right?") from None
    found = JAVA_VERSION.search(done.stderr + done.stdout)
    if found is None or int(found[1]) < LEAST_JAVA:
        version = "an unknown version" if found is None else found[1] + found[2]
        raise BenchError(f"{java} is {version}; Kafka needs Java {LEAST_JAVA} or newer")
    return found[1] + found[2]


def free_ports(count: int) -> list[int]:
    """Kafka cannot use port 0, because the controller's port is one of its settings."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [int(listener.getsockname()[1]) for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def _format(command: Sequence[str], properties: Path) -> None:
    """Write the metadata of a new cluster into the data folder."""
    cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
    arguments = ["kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", str(properties)]
    done = subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise BenchError(f"Kafka's folder cannot be formatted: {done.stdout}{done.stderr}")


@contextmanager
def process_group(command: Sequence[str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run a program in a process group of its own. At the end the group gets SIGTERM, and SIGKILL if it stays."""
    with log.open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-c", DIES_WITH_PARENT, str(os.getpid()), *command],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        _signal_group(process, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(STOP_TIMEOUT_S)
        _signal_group(process, signal.SIGKILL)
        process.wait()


def _signal_group(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, number)


def _await_port(process: subprocess.Popen[bytes], port: int, log: Path) -> None:
    deadline = time.monotonic() + START_TIMEOUT_S
    while time.monotonic() < deadline:
        with suppress(OSError), socket.create_connection((HOST, port), 1.0):
            return
        if process.poll() is not None:
            raise BenchError(f"Kafka ended with exit code {process.returncode}. {_tail(log)}")
        time.sleep(PAUSE_S)
    raise BenchError(f"Kafka does not listen after {START_TIMEOUT_S:.0f} s. {_tail(log)}")


def _tail(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
    return "\n".join(["The end of its output:", *(lines or ["(none)"])])


@contextmanager
def synced_commits(client: Client) -> Iterator[None]:
    """Within the block Kafka syncs each write of offsets before it answers."""
    _set_flush_messages(client, "1")
    try:
        yield
    finally:
        _set_flush_messages(client, None)


def _set_flush_messages(client: Client, value: str | None) -> None:
    """Change the setting, or delete it, and wait until the broker has it. Raises BenchError."""
    alter = api("incremental_alter_configs", 1)
    change = alter.types.AlterableConfig(name=FLUSH, config_operation=DELETE if value is None else SET, value=value)
    resource = alter.types.AlterConfigsResource(resource_type=TOPIC, resource_name=OFFSETS_TOPIC, configs=(change,))
    [answer] = client.ask(alter, resources=(resource,), validate_only=False).responses
    if answer.error_code:
        raise BenchError(
            f"{FLUSH} of {OFFSETS_TOPIC} cannot be set: {answer.error_code!r} {answer.error_message or ''}"
        )
    deadline = time.monotonic() + CHANGE_TIMEOUT_S
    while (_flush_messages(client) == "1") is not (value == "1"):
        if time.monotonic() > deadline:
            raise BenchError(f"{FLUSH} of {OFFSETS_TOPIC} is still {_flush_messages(client)}")
        time.sleep(PAUSE_S)


def _flush_messages(client: Client) -> str:
    describe = api("describe_configs", 4)
    resource = describe.types.DescribeConfigsResource(
        resource_type=TOPIC, resource_name=OFFSETS_TOPIC, configuration_keys=(FLUSH,)
    )
    [answer] = client.ask(describe, resources=(resource,)).results
    return "".join(str(config.value) for config in answer.configs)
