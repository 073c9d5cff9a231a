"""A real Kafka for tests: its jars by Maven coordinates, one node (KRaft) on free ports, all state in one folder.

Kafka is not installed with this project. Maven downloads the jars once, into a cache folder of the user. ``missing``
returns the reason if Java or Maven is not installed.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import os
import shutil
import socket
import subprocess
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from peers.waiting import wait_until
from peers.wire import Wire

VERSION = "4.3.1"
CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "callboard-tests"

HOST = "127.0.0.1"
# For a quick start: these programs run too briefly to profit from the JIT compiler's optimisations.
JAVA_OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
MAX_HEAP = "-Xmx512m"
TESTS = Path(__file__).parent.parent
PROGRAMS = tuple(
    TESTS / name for name in ("peers/GroupAdmin.java", "peers/JavaMembers.java", "real_kafka/KafkaTools.java")
)
START_DEADLINE_S = 120.0
STOP_DEADLINE_S = 60.0
DOWNLOAD_DEADLINE_S = 900.0
LOG_TAIL_CHARS = 4000

# The errors of a coordinator that has not loaded its partition yet.
NOT_READY = ("COORDINATOR_NOT_AVAILABLE", "NOT_COORDINATOR", "COORDINATOR_LOAD_IN_PROGRESS")

# Minimal for tests: no auto-created topics, no initial rebalance delay, only one offsets partition to load.
TEST_SETTINGS: Mapping[str, object] = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
}


class Jars(NamedTuple):
    """Programs by their Maven coordinates. ``folder``: the name of their folder in the cache."""

    folder: str
    coordinates: tuple[str, ...]


NO_LOG = "org.slf4j:slf4j-nop:1.7.36"
KAFKA = Jars(
    f"kafka-{VERSION}",
    (f"org.apache.kafka:kafka_2.13:{VERSION}", f"org.apache.kafka:kafka-tools:{VERSION}", NO_LOG),
)
FRAMEWORKS = Jars(
    f"frameworks-{VERSION}",
    (
        *(f"org.apache.kafka:connect-{part}:{VERSION}" for part in ("runtime", "file", "json")),
        f"org.apache.kafka:kafka-streams:{VERSION}",
        NO_LOG,
    ),
)


class KafkaUnavailable(Exception):
    """A real Kafka cannot be started on this machine. The message has the reason and a remedy."""


def missing() -> str | None:
    """Return a message about missing programs; None if Java and Maven are installed."""
    missing_programs = [program for program in ("java", "mvn") if shutil.which(program) is None]
    if not missing_programs:
        return None
    return f"a real Kafka needs {' and '.join(missing_programs)} on the PATH (Java 17 or newer, Maven 3)"


def jars(wanted: Jars = KAFKA) -> Path:
    """Return the folder with the jars, filled by Maven the first time. Raises KafkaUnavailable if that fails."""
    folder = CACHE / wanted.folder
    if folder.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    with _file_lock(folder.with_suffix(".lock")):
        if not folder.exists():
            _download(folder, wanted)
    return folder


def programs() -> Path:
    """Return the folder with our Java programs, compiled. It is in the cache, and named after their source."""
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in PROGRAMS)).hexdigest()[:12]
    folder = CACHE / f"programs-{VERSION}-{digest}"
    with _file_lock(folder.with_suffix(".lock")):
        if not folder.exists():
            new = folder.with_suffix(f".{os.getpid()}")
            flags = [f"-J{option}" for option in JAVA_OPTIONS]
            command = ["javac", *flags, "-proc:none", "--release", "17", "-cp", f"{jars()}/*", "-d", str(new)]
            subprocess.run([*command, *map(str, PROGRAMS)], check=True)
            new.rename(folder)
    return folder


class RealKafka:
    """One Kafka node, with its log in ``data``. ``start`` returns when the group coordinator is ready.

    After ``stop`` it may be started again, with other ports.
    """

    def __init__(self, folder: Path, settings: Mapping[str, object] = TEST_SETTINGS) -> None:
        self.host = HOST
        self.port = 0
        self._class_path = f"{jars()}/*"
        self._properties = folder / "server.properties"
        self._log = folder / "kafka.txt"
        self.data = folder / "kafka-data"
        self._settings = settings
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.port, controller_port = free_ports(2)
        self._properties.write_text(_properties(self.port, controller_port, self.data, self._settings))
        if not self.data.exists():
            self._format()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._java("kafka.Kafka", str(self._properties)), stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        try:
            wait_until(self._is_ready, bool, "a real Kafka to start", START_DEADLINE_S)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Terminate the process; kill it after a timeout."""
        if self._process is None:
            return
        process, self._process = self._process, None
        process.terminate()
        try:
            process.wait(STOP_DEADLINE_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def _is_ready(self) -> bool:
        """Whether the group coordinator is found and has loaded its partition."""
        assert self._process is not None
        code = self._process.poll()
        assert code is None, f"Kafka ended with {code}\n{self._log.read_text(errors='replace')[-LOG_TAIL_CHARS:]}"
        try:
            with Wire(self.host, self.port) as wire:
                coordinator = wire.ask("find_coordinator", 0, key="any")
                described = wire.ask("describe_groups", 0, groups=["any"])
        except OSError:
            return False
        return coordinator["error_code"] == "NONE" and described["groups"][0]["error_code"] not in NOT_READY

    def _format(self) -> None:
        """Copy a formatted folder. All nodes have the same cluster id."""
        formatted = CACHE / f"formatted-{VERSION}"
        with _file_lock(formatted.with_suffix(".lock")):
            if not formatted.exists():
                self._make_formatted(formatted)
        shutil.copytree(formatted, self.data)

    def _make_formatted(self, target: Path) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        command = self._java(
            "kafka.tools.StorageTool", "format", f"--cluster-id={cluster_id}", "-c", str(self._properties)
        )
        result = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
        assert result.returncode == 0, f"Kafka's folder cannot be formatted\n{result.stdout}{result.stderr}"
        new = target.with_name(f"{target.name}.{os.getpid()}")
        shutil.copytree(self.data, new)
        new.rename(target)
        shutil.rmtree(self.data)

    def _java(self, *arguments: str) -> list[str]:
        return ["java", MAX_HEAP, *JAVA_OPTIONS, "-cp", self._class_path, *arguments]


def _properties(port: int, controller_port: int, data: Path, settings: Mapping[str, object]) -> str:
    """Return the properties of one node that is both broker and controller."""
    values = {
        "process.roles": "broker,controller",
        "node.id": 1,
        "listeners": f"PLAINTEXT://{HOST}:{port},CONTROLLER://{HOST}:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://{HOST}:{port}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.listener.names": "CONTROLLER",
        "controller.quorum.voters": f"1@{HOST}:{controller_port}",
        "log.dirs": data,
        **settings,
    }
    return "".join(f"{name}={value}\n" for name, value in values.items())


def free_ports(count: int) -> list[int]:
    """Return free ports. Kafka cannot use port 0, because the controller's address is part of the properties."""
    sockets = [socket.create_server((HOST, 0)) for _ in range(count)]
    ports = [listener.getsockname()[1] for listener in sockets]
    for listener in sockets:
        listener.close()
    return ports


def _download(target: Path, wanted: Jars) -> None:
    """Download the jars into a temporary folder and rename it: an interrupted download leaves no ``target``."""
    folder = target.with_name(f"{target.name}.{os.getpid()}")
    folder.mkdir(parents=True)
    try:
        (folder / "pom.xml").write_text(_pom(wanted))
        command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'jars'}"]
        result = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            timeout=DOWNLOAD_DEADLINE_S,
        )
        if result.returncode != 0:
            raise KafkaUnavailable(
                f"Maven could not get Kafka's jars: {result.stdout[-LOG_TAIL_CHARS:]}{result.stderr}"
            )
        (folder / "jars").rename(target)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _pom(wanted: Jars) -> str:
    dependencies = "".join(
        f"<dependency><groupId>{group}</groupId><artifactId>{artifact}</artifactId><version>{version}</version></dependency>"
        for group, artifact, version in (coordinate.split(":") for coordinate in wanted.coordinates)
    )
    return (
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>callboard.tests</groupId><artifactId>real-kafka</artifactId><version>1</version>"
        f"<dependencies>{dependencies}</dependencies></project>"
    )


@contextmanager
def _file_lock(path: Path) -> Iterator[None]:
    """Hold a lock, so that only one of several test processes downloads."""
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
