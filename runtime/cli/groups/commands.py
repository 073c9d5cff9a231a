"""``callboard groups list|describe|offsets|reset|delete``: groups and their offsets on any server of Kafka's protocol.

Exit codes: 0 done; 1 the server is away or said no, in one line on standard error; 2 the command line makes no sense,
and nothing was asked.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Annotated

import typer

from ....actors.errors import ErrorCode
from ...client.cluster import EARLIEST, LATEST, Cluster, GroupDescription, OffsetAndMetadata, TopicPartition
from ...client.errors import ClientError, RefusedError, describe_error_code
from ...common.errors import StartError
from ...common.printing import csv_stream, print_error, print_json, print_line
from ...settings.table import nearest, parse_address
from ..main import make_app
from .report import Line, group_json, look_at_offsets, member_table, offset_table, total_lag
from .reset import Bounds, Step, Target, Way, choose_target, parse_topic, plan, step_table
from .show import Column, Table, counted, grouped, print_facts, print_table

REFUSED_EXIT_CODE = 1
STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead", "Assigning", "Reconciling")
CLASSIC = "classic"  # a server that is too old to tell types has no others
TYPES = (CLASSIC, "consumer", "share", "streams")
COLUMNS = (
    Column("group", "group"),
    Column("state", "state"),
    Column("type", "type"),
    Column("protocol_type", "protocol type"),
)

Bootstrap = Annotated[
    str, typer.Option("--bootstrap-server", "-b", metavar="HOST:PORT", help="A server of the cluster.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, for programs.")]
TimeoutS = Annotated[float, typer.Option("--timeout", min=0.1, help="Seconds to wait for an answer.")]
GroupId = Annotated[str, typer.Argument(metavar="GROUP")]

HERE = "127.0.0.1:9092"

app = make_app("List, describe, reset and delete consumer groups, on any server that speaks Kafka's protocol.")


def connect(bootstrap_server: str, timeout_s: float) -> Cluster:
    return Cluster(parse_address("--bootstrap-server", bootstrap_server, lowest_port=1), timeout_s)


@app.command("list")
def list_groups(
    bootstrap_server: Bootstrap = HERE,
    state: Annotated[list[str] | None, typer.Option(help="Only groups in this state; may be repeated.")] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only groups of this type; may be repeated.")
    ] = None,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """List the groups with their states."""
    states = {name_of("state", one, STATES) for one in state or ()}
    types = {name_of("type", one, TYPES) for one in type_ or ()}
    with connect(bootstrap_server, timeout) as cluster:
        groups = [
            group
            for group in cluster.groups()
            if (not states or group.state in states) and (not types or (group.group_type or CLASSIC).lower() in types)
        ]
    table = Table(COLUMNS, groups)
    if as_json:
        print_json(table.as_json())
    elif groups:
        print_table(table)
    else:
        such = " in this state" if states and not types else " of this kind" if types else ""
        print_error(f"no groups{such} on {bootstrap_server}")


def name_of(what: str, text: str, names: Sequence[str]) -> str:
    """A state or type as it is written here, from any case. Raises StartError."""
    for name in names:
        if text.strip().lower() == name.lower():
            return name
    raise StartError(f"unknown {what} '{text}':{nearest(text, names)} known are {', '.join(names)}")


@app.command("describe")
def describe(
    group: GroupId, bootstrap_server: Bootstrap = HERE, as_json: AsJson = False, timeout: TimeoutS = 10.0
) -> None:
    """Show a group: its state, its members with what they are assigned, and how far they are."""
    with connect(bootstrap_server, timeout) as cluster:
        description = cluster.describe(group)
        lines = look_at_offsets(cluster, group, description.members)
    if as_json:
        print_json(group_json(description, lines))
        return
    print_facts(facts_of(description, lines))
    if description.members:
        print_line()
        print_table(member_table(description.members, lines))
    if lines:
        print_line()
        print_table(offset_table(lines, with_members=True))


def facts_of(description: GroupDescription, lines: Sequence[Line]) -> list[tuple[str, str]]:
    protocol = description.protocol or "-"
    if description.protocol_type:
        protocol += f" ({description.protocol_type})"
    return [
        ("group", description.group_id),
        ("state", description.state),
        ("protocol", protocol),
        ("coordinator", str(description.coordinator)),
        ("members", grouped(len(description.members))),
        ("lag", lag_in_words(lines)),
    ]


def lag_in_words(lines: Sequence[Line]) -> str:
    """The sum, and of how many partitions: without an offset a partition has no lag."""
    lag, known = total_lag(lines), sum(line.lag is not None for line in lines)
    if lag is None:
        return "-"
    of = counted(len(lines), "partition")
    return f"{counted(lag, 'record')} in {of if known == len(lines) else f'{known} of {of}'}"


@app.command("offsets")
def offsets(
    group: GroupId,
    bootstrap_server: Bootstrap = HERE,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print topic,partition,offset, for reset --from-file.")] = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Show what a group has committed, and how far it is from the end."""
    if as_csv and as_json:
        raise StartError("expected --json or --csv, not both")
    with connect(bootstrap_server, timeout) as cluster:
        lines = look_at_offsets(cluster, group)
        if not lines:
            cluster.describe(group)  # is it there at all?
    table = offset_table(lines, with_members=False)
    if as_csv:
        rows = [(*line.place, line.committed.offset) for line in lines if line.committed is not None]
        csv.writer(csv_stream(), lineterminator="\n").writerows(rows)
    elif as_json:
        print_json(table.as_json())
    elif lines:
        print_table(table)
    else:
        print_error(f"group '{group}' has no offsets")


@app.command("reset")
def reset(
    group: GroupId,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="T[:P,...]", help="A topic, or some of its partitions; may be repeated.")
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="Everything that the group has offsets for.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="Behind the last record.")] = False,
    to_offset: Annotated[int | None, typer.Option(help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="Forward by so many records, or back (a negative number).")
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="ISO", help="To the first record of this time or later; UTC without a zone.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option(metavar="CSV", help="To what the lines topic,partition,offset say.")
    ] = None,
    execute: Annotated[bool, typer.Option("--execute", help="Write. Without it, only show what would be.")] = False,
    create: Annotated[bool, typer.Option("--create", help="Make the group if there is none.")] = False,
    bootstrap_server: Bootstrap = HERE,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Move the offsets of a group without members. A dry run, unless --execute is given."""
    target = choose_target(to_earliest, to_latest, to_offset, shift_by, to_datetime, from_file)
    chosen = [parse_topic(one) for one in topic or ()]
    check_choice(target, bool(chosen), all_topics)
    with connect(bootstrap_server, timeout) as cluster:
        check_resettable(cluster, group, create)
        committed = cluster.committed(group)
        places = places_of(cluster, target, chosen, committed)
        steps = plan(places, committed, bounds_of(cluster, places, target), target)
        refused = cluster.commit(group, {step.place: step.after for step in steps}) if execute and steps else {}
    show_steps(group, steps, execute, as_json)
    complain(refused, len(steps))


def check_choice(target: Target, has_topics: bool, all_topics: bool) -> None:
    """Raise StartError unless it is clear what to reset."""
    given = [has_topics, all_topics, target.way is Way.FILE]
    if sum(given) != 1:
        raise StartError("expected what to reset: --topic T[:P,...], or --all-topics, or --from-file CSV, and only one")


def check_resettable(cluster: Cluster, group: str, create: bool) -> None:
    """Raise ClientError unless the group is there, or may be made, and has no members."""
    try:
        description = cluster.describe(group)
    except RefusedError as refused:
        if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        if not create:
            raise ClientError(f"{refused}; --create makes it") from refused
        return
    if description.state not in ("Empty", "Dead"):
        raise ClientError(
            f"group '{group}' is {description.state} with {counted(len(description.members), 'member')}: "
            "stop its consumers first, they would overwrite what is reset "
            "(a killed one is a member until its session ends)"
        )


def places_of(
    cluster: Cluster,
    target: Target,
    chosen: Iterable[tuple[str, tuple[int, ...] | None]],
    committed: dict[TopicPartition, OffsetAndMetadata],
) -> list[TopicPartition]:
    if target.way is Way.FILE:
        return sorted(target.wanted)
    places: dict[TopicPartition, None] = {}
    for topic, partitions in chosen:
        known = cluster.partitions(topic)
        for partition in known if partitions is None else partitions:
            places[topic, partition] = None
    return sorted(places or committed)


def bounds_of(cluster: Cluster, places: Sequence[TopicPartition], target: Target) -> Bounds:
    at_time = cluster.list_offsets(places, target.number) if target.way is Way.DATETIME else {}
    return Bounds(cluster.list_offsets(places, EARLIEST), cluster.list_offsets(places, LATEST), at_time)


def show_steps(group: str, steps: Sequence[Step], is_written: bool, as_json: bool) -> None:
    table = step_table(steps)
    if as_json:
        print_json({"group": group, "executed": is_written, "offsets": table.as_json()})
        return
    if steps:
        print_table(table)
    what = f"{counted(len(steps), 'offset')} of group '{group}'"
    print_line(f"{what} written" if is_written else f"dry run: {what} would be written; --execute writes them")


def complain(refused: dict[TopicPartition, int], of: int) -> None:
    """Raise ClientError where partitions were refused; the first stands for all."""
    if refused:
        (topic, partition), code = next(iter(refused.items()))
        raise ClientError(f"{len(refused)} of {of} refused, {topic}:{partition} first: {describe_error_code(code)}")


@app.command("delete")
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...")],
    offsets: Annotated[
        list[str] | None,
        typer.Option(metavar="T[:P,...]", help="Delete only these offsets of the group; may be repeated."),
    ] = None,
    bootstrap_server: Bootstrap = HERE,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Delete groups without members, with all their offsets; or, with --offsets, single offsets of one group."""
    chosen = [parse_topic(one) for one in offsets or ()]
    if chosen and len(groups) != 1:
        raise StartError(f"--offsets is for one group, not for {len(groups)}")
    with connect(bootstrap_server, timeout) as cluster:
        if chosen:
            delete_offsets(cluster, groups[0], chosen, as_json)
        else:
            delete_groups(cluster, list(dict.fromkeys(groups)), as_json)


def delete_offsets(
    cluster: Cluster, group: str, chosen: Iterable[tuple[str, tuple[int, ...] | None]], as_json: bool
) -> None:
    committed = cluster.committed(group)
    places: dict[TopicPartition, None] = {}
    for topic, partitions in chosen:
        has = [place for place in committed if place[0] == topic]
        places.update(dict.fromkeys(has if partitions is None else [(topic, one) for one in partitions]))
        if partitions is None and not has:
            cluster.describe(group)
            raise ClientError(f"group '{group}' has no offsets for topic '{topic}'")
    refused = cluster.delete_offsets(group, places)
    gone = [place for place in places if place not in refused]
    if as_json:
        print_json({"group": group, "deleted": [{"topic": topic, "partition": one} for topic, one in gone]})
    else:
        print_line(f"{counted(len(gone), 'offset')} of group '{group}' deleted")
    complain(refused, len(places))


def delete_groups(cluster: Cluster, groups: Sequence[str], as_json: bool) -> None:
    """Each for itself; the first that is refused gives the exit code, after the others have had their turn."""
    failures = []
    for group in groups:
        try:
            cluster.delete_group(group)
        except RefusedError as refused:
            failures.append(refused)
        else:
            if not as_json:
                print_line(f"group '{group}' deleted")
    if as_json:
        print_json({"groups": list(groups), "refused": [str(failure) for failure in failures]})
    for failure in failures[1:]:
        print_error(failure)
    if failures:
        raise failures[0]


def main(argv: Sequence[str]) -> int:
    try:
        app(list(argv), prog_name="callboard groups")
    except ClientError as error:
        print_error(error)
        return REFUSED_EXIT_CODE
    return 0
