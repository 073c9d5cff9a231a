"""``callboard topics``: topics on any server of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from ...actors.text import format_count
from ..client.topics import add_partitions, create_topic, delete_topic, describe_topic, list_topics
from ..common.printing import print_json, print_line
from .main import make_app
from .server_options import DEFAULT_SERVER, AsJson, Bootstrap, TimeoutS, connect, parse_assignment, run_app
from .tables import Column, Table, print_table, show_rows

TOPIC_COLUMNS = (Column("topic", "topic"), Column("partitions", "partitions", is_number=True))
PARTITION_COLUMNS = (
    Column("partition", "partition", is_number=True),
    Column("leader", "leader", is_number=True),
    Column("first_offset", "first offset", is_number=True),
    Column("end_offset", "end offset", is_number=True),
)

TopicName = Annotated[str, typer.Argument(metavar="TOPIC")]

app = make_app("List, describe, create, grow and delete topics, on any server that speaks Kafka's protocol.")


@app.command("list")
def list_(
    internal: Annotated[bool, typer.Option("--internal", help="Internal topics too.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """List the topics with the number of their partitions."""
    with connect(bootstrap_server, timeout) as cluster:
        topics = [topic[:2] for topic in list_topics(cluster) if internal or not topic.is_internal]
    show_rows(Table(TOPIC_COLUMNS, topics), f"no topics on {bootstrap_server}", as_json=as_json)


@app.command("describe")
def describe(
    topic: TopicName, bootstrap_server: Bootstrap = DEFAULT_SERVER, as_json: AsJson = False, timeout: TimeoutS = 10.0
) -> None:
    """Show the partitions of a topic: the broker that leads each, and its first and end offset."""
    with connect(bootstrap_server, timeout) as cluster:
        table = Table(PARTITION_COLUMNS, describe_topic(cluster, topic))
    if as_json:
        print_json({"topic": topic, "partitions": table.as_json()})
    else:
        print_table(table)


@app.command("create")
def create(
    topic: TopicName,
    partitions: Annotated[int, typer.Option(min=1, metavar="N", help="The number of partitions.")] = 1,
    config: Annotated[
        list[str] | None, typer.Option(metavar="NAME=VALUE", help="A setting of the topic; may be repeated.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    timeout: TimeoutS = 10.0,
) -> None:
    """Create a topic."""
    configs = dict(parse_assignment("--config", text) for text in config or ())
    with connect(bootstrap_server, timeout) as cluster:
        create_topic(cluster, topic, partitions, configs)
    print_line(f"topic '{topic}' created with {format_count(partitions, 'partition')}")


@app.command("grow")
def grow(
    topic: TopicName,
    partitions: Annotated[int, typer.Option(min=1, metavar="N", help="The new number of partitions.")],
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    timeout: TimeoutS = 10.0,
) -> None:
    """Give a topic more partitions. Groups that read it rebalance."""
    with connect(bootstrap_server, timeout) as cluster:
        add_partitions(cluster, topic, partitions)
    print_line(f"topic '{topic}' has {format_count(partitions, 'partition')}")


@app.command("delete")
def delete(
    topics: Annotated[list[str], typer.Argument(metavar="TOPIC...")],
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    timeout: TimeoutS = 10.0,
) -> None:
    """Delete topics with their records. Groups lose their offsets of these topics."""
    with connect(bootstrap_server, timeout) as cluster:
        for topic in dict.fromkeys(topics):
            delete_topic(cluster, topic)
            print_line(f"topic '{topic}' deleted")


def main(argv: Sequence[str]) -> int:
    return run_app(app, argv, "callboard topics")
