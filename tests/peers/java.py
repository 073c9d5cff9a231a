"""Java's own client, through Kafka's programs VerifiableConsumer and VerifiableProducer, and one of our own.

All print what their clients do as JSON lines. Kafka's jars are found by Maven (``real_kafka/kafka.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from real_kafka.kafka import JAVA_OPTIONS, programs

from .peer import CommandProcess, EventProcess
from .peer_main import AUTO_COMMIT_INTERVAL_MS, HEARTBEAT_INTERVAL_MS

TOOLS = "org.apache.kafka.tools"
CLIENTS = "org.apache.kafka.clients.consumer"
JAVA = ("java", "-Xmx64m", *JAVA_OPTIONS)
EXIT_CODE_SIGTERM = 128 + 15

CONSUMER_CONFIG = {
    # Frequent heartbeats and reconnects: a member learns of a rebalance by a heartbeat, so the tests take less time.
    "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    "fetch.max.wait.ms": 100,
    "auto.commit.interval.ms": AUTO_COMMIT_INTERVAL_MS,
    "reconnect.backoff.max.ms": 200,
    # While the only broker is down, a client would rebootstrap (KIP-1102), see changed topics and sometimes rejoin.
    "metadata.recovery.strategy": "none",
}


class JavaProgram(EventProcess):
    """One of Kafka's programs in its own process."""

    kind_field = "name"

    def __init__(self, jars: Path, name: str, folder: Path, program: str, *flags: str, **options: Any) -> None:
        command = [*JAVA, "-cp", f"{jars}/*", f"{TOOLS}.{program}", *flags]
        for option, value in options.items():
            command += [f"--{option.replace('_', '-')}", str(value)]
        super().__init__(name, folder, command)


class JavaConsumer(JavaProgram):
    """A consumer that commits after each poll, or with the flag ``--enable-autocommit`` by itself.

    ``security``: settings besides ``CONSUMER_CONFIG``.
    """

    def __init__(
        self,
        jars: Path,
        name: str,
        folder: Path,
        *flags: str,
        security: Mapping[str, object] | None = None,
        **options: Any,
    ) -> None:
        config = folder / f"{name}.properties"
        values = CONSUMER_CONFIG | dict(security or {})
        config.write_text("".join(f"{setting}={value}\n" for setting, value in values.items()))
        super().__init__(
            jars, name, folder, "VerifiableConsumer", "--verbose", *flags, command_config=config, **options
        )

    @property
    def assignment(self) -> frozenset[int]:
        """The partitions that are assigned and not revoked."""
        self.check_alive()
        owned: set[int] = set()
        for event in self.events():
            if event["name"] == "partitions_assigned":
                owned |= {part["partition"] for part in event["partitions"]}
            elif event["name"] == "partitions_revoked":
                owned -= {part["partition"] for part in event["partitions"]}
        return frozenset(owned)

    @property
    def rebalances(self) -> int:
        """How often its listener was called with an assignment."""
        return len(self.events("partitions_assigned"))

    def received(self) -> list[tuple[int, int, str]]:
        """Partition, offset and value of each record."""
        return [_record_fields(event) for event in self.events("record_data")]

    def committed(self) -> dict[int, int]:
        """The last committed offset of each partition, according to the client."""
        return {
            part["partition"]: part["offset"]
            for event in self.events("offsets_committed")
            if event["success"]
            for part in event["offsets"]
        }

    def close(self) -> None:
        """Send SIGTERM, on which it closes its client."""
        self._process.terminate()
        self._wait_for_exit(EXIT_CODE_SIGTERM)
        assert self.events("shutdown_complete"), f"{self.name} did not close its client"


class JavaMembers(CommandProcess):
    """Members of a group of the consumer protocol, in one process: see ``JavaMembers.java``."""

    def __init__(self, jars: Path, name: str, folder: Path, bootstrap: str, group: str) -> None:
        super().__init__(name, folder, [*JAVA, "-cp", f"{programs()}:{jars}/*", "JavaMembers", bootstrap, group])

    def of(self, member: str, kind: str) -> list[Any]:
        """The events of a member."""
        return [event for event in self.events(kind) if event["member"] == member]

    def positions(self, member: str) -> list[tuple[int, int]]:
        """The partition and offset of each record that a member has received."""
        return [(event["partition"], event["offset"]) for event in self.of(member, "record")]

    def moved(self, member: str, kind: str) -> list[list[int]]:
        """The partitions of each of its callbacks that had any. ``kind``: assigned, revoked or lost."""
        return [event["partitions"] for event in self.of(member, kind) if event["partitions"]]

    def assignment(self, member: str) -> frozenset[int]:
        """The partitions that are assigned and not revoked."""
        self.check_alive()
        owned: set[int] = set()
        for event in self.events():
            if event.get("member") != member:
                continue
            if event["event"] == "assigned":
                owned |= set(event["partitions"])
            elif event["event"] in ("revoked", "lost"):
                owned -= set(event["partitions"])
        return frozenset(owned)


class JavaProducer(JavaProgram):
    """A producer of a number of records, which ends when all have been acknowledged."""

    def __init__(self, jars: Path, name: str, folder: Path, **options: Any) -> None:
        super().__init__(jars, name, folder, "VerifiableProducer", **options)

    def sent(self) -> list[tuple[int, int, str]]:
        """Wait until it ends; return partition, offset and value of each record."""
        self._wait_for_exit(0)
        return sorted(_record_fields(event) for event in self.events("producer_send_success"))


def _record_fields(event: dict[str, Any]) -> tuple[int, int, str]:
    return event["partition"], event["offset"], event["value"]
