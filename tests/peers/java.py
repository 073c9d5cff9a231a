"""Java's own client, through two of Kafka's programs: VerifiableConsumer and VerifiableProducer.

Both print an event as a JSON line for whatever their client does. They are part of Kafka's tools, whose jars Maven
finds (``real_kafka/kafka.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .script import HEARTBEAT_INTERVAL_MS
from .stage import Speaker

TOOLS = "org.apache.kafka.tools"
CLIENTS = "org.apache.kafka.clients.consumer"
# Small and quick to start: what a JVM optimises in the long run plays no part here.
JAVA = ("java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
ENDED_BY_SIGTERM = 128 + 15

CONSUMER_CONFIG = {
    # Rebalances are heard of with heartbeats, and a server that comes back is looked for often: both make tests short.
    "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    "fetch.max.wait.ms": 100,
    "reconnect.backoff.max.ms": 200,
    # With the only broker away, a client would begin from nothing (KIP-1102), find that topics have changed since it
    # assigned them, and join again: now and then, and with any broker.
    "metadata.recovery.strategy": "none",
}


class JavaProgram(Speaker):
    """One of Kafka's programs in a process of its own."""

    kind_field = "name"

    def __init__(self, jars: Path, name: str, folder: Path, program: str, *flags: str, **options: Any) -> None:
        command = [*JAVA, "-cp", f"{jars}/*", f"{TOOLS}.{program}", *flags]
        for option, value in options.items():
            command += [f"--{option.replace('_', '-')}", str(value)]
        super().__init__(name, folder, command)


class JavaConsumer(JavaProgram):
    """A consumer that commits whatever it has received, after each poll."""

    def __init__(self, jars: Path, name: str, folder: Path, **options: Any) -> None:
        config = folder / f"{name}.properties"
        config.write_text("".join(f"{setting}={value}\n" for setting, value in CONSUMER_CONFIG.items()))
        super().__init__(jars, name, folder, "VerifiableConsumer", "--verbose", command_config=config, **options)

    @property
    def assignment(self) -> frozenset[int]:
        """The partitions that it was given and that were not taken away since."""
        self.check_alive()
        held: set[int] = set()
        for event in self.events():
            if event["name"] == "partitions_assigned":
                held |= {part["partition"] for part in event["partitions"]}
            elif event["name"] == "partitions_revoked":
                held -= {part["partition"] for part in event["partitions"]}
        return frozenset(held)

    @property
    def rebalances(self) -> int:
        """How often its listener was told of an assignment."""
        return len(self.events("partitions_assigned"))

    def received(self) -> list[tuple[int, int, str]]:
        """Partition, offset and value of each record."""
        return [_place(event) for event in self.events("record_data")]

    def committed(self) -> dict[int, int]:
        """The offset by partition that was committed last, as its client was told."""
        return {
            part["partition"]: part["offset"]
            for event in self.events("offsets_committed")
            if event["success"]
            for part in event["offsets"]
        }

    def close(self) -> None:
        """Let it say goodbye, as a service manager does: it closes its client on SIGTERM."""
        self._process.terminate()
        self._end(ENDED_BY_SIGTERM)
        assert self.events("shutdown_complete"), f"{self.name} did not close its client"


class JavaProducer(JavaProgram):
    """A producer of a number of records, which ends when all have been acknowledged."""

    def __init__(self, jars: Path, name: str, folder: Path, **options: Any) -> None:
        super().__init__(jars, name, folder, "VerifiableProducer", **options)

    def sent(self) -> list[tuple[int, int, str]]:
        """Wait until it ends; return partition, offset and value of each record."""
        self._end(0)
        return sorted(_place(event) for event in self.events("producer_send_success"))


def _place(event: dict[str, Any]) -> tuple[int, int, str]:
    return event["partition"], event["offset"], event["value"]
