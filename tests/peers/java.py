"""Java's own client, through two of Kafka's programs: VerifiableConsumer and VerifiableProducer.

Both print what their client does as JSON lines. They are part of Kafka's tools, whose jars Maven
finds (``real_kafka/kafka.py``).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .peer import EventProcess
from .peer_main import HEARTBEAT_INTERVAL_MS

TOOLS = "org.apache.kafka.tools"
CLIENTS = "org.apache.kafka.clients.consumer"
# For a quick start: these programs run too briefly to profit from the JIT compiler's optimisations.
JAVA = ("java", "-Xmx64m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
EXIT_CODE_SIGTERM = 128 + 15

CONSUMER_CONFIG = {
    # Frequent heartbeats and reconnects: a member learns of a rebalance by a heartbeat, so the tests take less time.
    "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
    "fetch.max.wait.ms": 100,
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
    """A consumer that commits after each poll."""

    def __init__(self, jars: Path, name: str, folder: Path, **options: Any) -> None:
        config = folder / f"{name}.properties"
        config.write_text("".join(f"{setting}={value}\n" for setting, value in CONSUMER_CONFIG.items()))
        super().__init__(jars, name, folder, "VerifiableConsumer", "--verbose", command_config=config, **options)

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
