"""Kafka's ConsumerGroupCommand with our server and with a real Kafka: the output is the same.

Skipped without Java or Maven, like all tests of this folder.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer

from callboard.runtime.cli.groups.reset import read_offsets

from .kafka import RealKafka
from .paired_requests import commit_values, create_topic, fetch_all, join_values, leave, sync_values
from .side_by_side import Address, PairedConnection, PairedValue, SideBySide
from .tools import GROUP_COMMAND, KafkaTools, ToolResult

CONFIG_COMMAND = "kafka.admin.ConfigCommand"
DEADLINE_S = 120.0
RECORDS = 10
# Values that differ between servers: member ids and the port.
SERVER_VALUES = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<=127\.0\.0\.1:)\d+")

Addresses = tuple[Address, Address]


@pytest.fixture(scope="module")
def addresses(real_kafka: RealKafka, our_address: Address) -> Addresses:
    return our_address, (real_kafka.host, real_kafka.port)


@pytest.fixture(scope="module")
def line(addresses: Addresses) -> Iterator[PairedConnection]:
    with SideBySide(*addresses) as side_by_side:
        yield side_by_side.connection()


@pytest.fixture(scope="module")
def member(addresses: Addresses, line: PairedConnection) -> PairedValue:
    """On both servers: topics with records, the group "idle" with offsets and the group "shop" with one member."""
    for topic in ("orders", "refunds"):
        create_topic(line, topic, partitions=2)
    for host, port in addresses:
        fill(f"{host}:{port}")
    commit(line, "idle", "orders", 3)
    commit(line, "idle", "refunds", 5)
    commit(line, "shop", "refunds", 5)
    return add_member(line, "shop")


def fill(bootstrap: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for topic in ("orders", "refunds"):
        for number in range(2 * RECORDS):
            producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(DEADLINE_S) == 0


def commit(line: PairedConnection, group: str, topic: str, offset: int) -> None:
    values = commit_values(group, topic)
    partition = {
        "partition_index": 0,
        "committed_offset": offset,
        "committed_metadata": "",
        "committed_leader_epoch": -1,
    }
    values["topics"][0]["partitions"] = [partition]
    line.ask("offset_commit", 8, **values)
    fetch_all(line, group)


def add_member(line: PairedConnection, group: str) -> PairedValue:
    """Add a member that subscribes to orders and has both partitions."""
    subscription = struct.pack(">hih6si", 0, 1, 6, b"orders", -1)
    protocols = [{"name": "range", "metadata": subscription}]
    member = line.ask("join_group", 3, **join_values(group, protocols=protocols))["member_id"]
    assignment = struct.pack(">hih6siiii", 0, 1, 6, b"orders", 2, 0, 1, -1)
    line.ask("sync_group", 3, **sync_values(group, member, [{"member_id": member, "assignment": assignment}]))
    return member


def call(tools: KafkaTools, address: Address, arguments: str, command: str = GROUP_COMMAND) -> ToolResult:
    return tools.run(command, "--bootstrap-server", f"{address[0]}:{address[1]}", *arguments.split())


def run(tools: KafkaTools, address: Address, arguments: str) -> list[str]:
    """Run the command; return its exit code and lines, sorted and with the values of OWN replaced."""
    result = call(tools, address, arguments)
    lines = (SERVER_VALUES.sub("<own>", line) for line in (result.out + result.err).splitlines())
    output_lines = [" ".join(line.split()) for line in lines if not line.startswith("\tat ")]
    return sorted([f"exit code {result.code}", *filter(None, output_lines)])


# The order matters: read-only commands are before those with changes.
STEPS = {
    "--list": "shop",
    "--list --state": "shop Stable",
    "--list --state EMPTY": "idle Empty",
    "--list --type classic": "idle Classic",
    "--describe --group shop": "orders 1",
    "--describe --group shop --offsets --verbose": "LEADER-EPOCH",
    "--describe --group shop --members --verbose": "orders:0,1",
    "--describe --all-groups --state": "shop 127.0.0.1:<own> (1) range Stable 1",
    "--describe --group idle": "Consumer group 'idle' has no active members.",
    "--describe --group nobody": "Group nobody not found.",
    "--reset-offsets --group idle --topic orders:0,1 --to-latest --dry-run": f"idle orders 1 {RECORDS}",
    "--reset-offsets --group idle --all-topics --shift-by -4 --execute": "idle refunds 0 1",
    "--reset-offsets --group shop --all-topics --to-earliest --execute": "but the current state is Stable.",
    "--delete-offsets --group shop --topic orders": "actively subscribed to it.",
    "--delete-offsets --group shop --topic refunds": "refunds 0 Successful",
    "--delete-offsets --group idle --topic refunds:0": "refunds 0 Successful",
    "--delete --group shop": "The group is not empty.",
    "--delete --group idle --group nobody": "Group 'nobody' could not be deleted",
    "--list --state Stable": "shop Stable",
}


def test_group_command_output_equals_kafka(
    kafka_tools: KafkaTools, addresses: Addresses, line: PairedConnection, member: PairedValue
) -> None:
    """Each command prints the same lines for both servers, and the expected text."""
    ours, theirs = addresses
    for arguments, expected in STEPS.items():
        output_lines = run(kafka_tools, ours, arguments)
        assert any(expected in output_line for output_line in output_lines), f"{arguments}: {output_lines}"
        assert output_lines == run(kafka_tools, theirs, arguments), arguments
        for group in ("idle", "shop"):
            fetch_all(line, group)
        line.ask("heartbeat", 3, group_id="shop", generation_id=1, member_id=member, group_instance_id=None)
    leave(line, 3, "shop", member)


def test_config_command_changes_and_shows_settings_of_groups(kafka_tools: KafkaTools, our_address: Address) -> None:
    """``kafka-configs.sh``. The answers that it shows are those of Kafka, see ``kafka/test_api_group_configs.py``."""
    group = "--entity-type groups --entity-name shop"
    change = f"{group} --alter --add-config consumer.session.timeout.ms=50000"
    added = call(kafka_tools, our_address, change, CONFIG_COMMAND)
    assert "Completed updating config for group shop." in added.out, added.err
    shown = call(kafka_tools, our_address, "--entity-type groups --describe", CONFIG_COMMAND)
    assert "Dynamic configs for group shop are:" in shown.out, shown.err
    values = (
        "DYNAMIC_GROUP_CONFIG:consumer.session.timeout.ms=50000, DEFAULT_CONFIG:group.consumer.session.timeout.ms=45000"
    )
    assert f"synonyms={{{values}}}" in shown.out


def test_reset_offsets_export_is_reimported(
    kafka_tools: KafkaTools, addresses: Addresses, line: PairedConnection, member: PairedValue, tmp_path: Path
) -> None:
    """--from-file and ``callboard groups reset`` read the output of --export."""
    assert member
    commit(line, "exported", "orders", 3)
    for address in addresses:
        file = tmp_path / "offsets.csv"
        exported = call(
            kafka_tools, address, "--reset-offsets --group exported --all-topics --to-latest --dry-run --export"
        )
        file.write_text(exported.out)
        assert read_offsets(file) == {("orders", 0): RECORDS}
        output_lines = run(kafka_tools, address, f"--reset-offsets --group exported --from-file {file} --execute")
        assert f"exported orders 0 {RECORDS}" in output_lines
    fetch_all(line, "exported")
