"""``callboard groups``: groups, their members and their offsets on any server of Kafka's protocol."""

from __future__ import annotations

import csv
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from ....actors.errors import ErrorCode
from ....actors.records import CLASSIC
from ....actors.text import did_you_mean, format_count
from ...client.cluster import (
    EARLIEST,
    LATEST,
    Cluster,
    GroupDescription,
    MemberDescription,
    OffsetAndMetadata,
    TopicPartition,
)
from ...client.errors import ClientError, RefusedError, describe_error_code
from ...common.errors import StartError
from ...common.printing import csv_stream, print_error, print_json, print_line
from ..main import make_app
from ..options import NUMBER_MAX, Reason, refuse_nan
from ..server_options import DEFAULT_SERVER, AsJson, Bootstrap, TimeoutS, connect, run_app
from ..tables import Column, Table, format_number, print_facts, print_table, show_rows
from .live_reset import (
    NEEDS_API,
    Execute,
    HttpApiUrl,
    Wait,
    open_api,
    reset_live,
    resets,
    targets_json,
    undo,
    watch,
)
from .report import PartitionLag, format_until, group_json, member_table, offset_table, read_partition_lags, total_lag
from .reset import (
    OffsetBounds,
    OffsetChange,
    ResetMode,
    ResetTarget,
    change_table,
    choose_target,
    parse_topic,
    plan_reset,
)

STATES = ("Stable", "Empty", "PreparingRebalance", "CompletingRebalance", "Dead", "Assigning", "Reconciling")
TYPES = (CLASSIC, "consumer", "share", "streams")
COLUMNS = (
    Column("group", "group"),
    Column("state", "state"),
    Column("type", "type"),
    Column("protocol_type", "protocol type"),
)

CLEAR_TERMINAL = "\x1b[H\x1b[2J"

GroupId = Annotated[str, typer.Argument(metavar="GROUP")]

app = make_app("Show, reset and delete consumer groups, on any server that speaks Kafka's protocol.")


@app.command("list")
def list_groups(
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    state: Annotated[list[str] | None, typer.Option(help="Only groups in this state; may be repeated.")] = None,
    type_: Annotated[
        list[str] | None, typer.Option("--type", help="Only groups of this type; may be repeated.")
    ] = None,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """List the groups with their states."""
    states = {parse_name("state", text, STATES) for text in state or ()}
    types = {parse_name("type", text, TYPES) for text in type_ or ()}
    with connect(bootstrap_server, timeout) as cluster:
        groups = [  # servers that are too old to report types have classic groups only
            group
            for group in cluster.groups()
            if (not states or group.state in states) and (not types or (group.group_type or CLASSIC).lower() in types)
        ]
    table = Table(COLUMNS, groups)
    filter_text = " in this state" if states and not types else " of this kind" if types else ""
    show_rows(table, f"no groups{filter_text} on {bootstrap_server}", as_json=as_json)


def parse_name(kind: str, text: str, names: Sequence[str]) -> str:
    """The spelling of a state or type in ``names``, for text in any case. Raises StartError."""
    for name in names:
        if text.strip().lower() == name.lower():
            return name
    raise StartError(f"unknown {kind} '{text}':{did_you_mean(text, names)} known are {', '.join(names)}")


@app.command("describe")
def describe(
    group: GroupId,
    watch: Annotated[
        float | None,
        typer.Option(
            "--watch",
            min=0.1,
            max=NUMBER_MAX,
            callback=refuse_nan,
            metavar="SECONDS",
            help="Show it repeatedly, at this interval, until Ctrl-C.",
        ),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Show a group: its state, its members with their assignments, and its offsets and lag."""
    with connect(bootstrap_server, timeout) as cluster:
        if watch is None:
            show_group(cluster, group, as_json)
        else:
            with suppress(KeyboardInterrupt):
                watch_group(cluster, group, as_json, watch)


def watch_group(cluster: Cluster, group: str, as_json: bool, interval_s: float) -> None:
    """Show a group at once and after each interval. A terminal is cleared before."""
    while True:
        if sys.stdout.isatty() and not as_json:
            sys.stdout.write(CLEAR_TERMINAL)
        show_group(cluster, group, as_json)
        if not as_json:
            print_line()
        sys.stdout.flush()
        time.sleep(interval_s)


def show_group(cluster: Cluster, group: str, as_json: bool) -> None:
    from ...client.resets import read_guarded_until  # imports more than the help needs

    description = cluster.describe(group)
    entries = read_partition_lags(cluster, group, description.members)
    guarded_until_ms = read_guarded_until(cluster, group)
    if as_json:
        print_json(group_json(description, entries, guarded_until_ms))
        return
    print_facts(group_facts(description, entries, guarded_until_ms))
    if description.members:
        print_line()
        print_table(member_table(description.members, entries))
    if entries:
        print_line()
        print_table(offset_table(entries, with_members=True))


def group_facts(
    description: GroupDescription, entries: Sequence[PartitionLag], guarded_until_ms: int | None
) -> list[tuple[str, str]]:
    protocol = description.protocol or "-"
    if description.protocol_type:
        protocol += f" ({description.protocol_type})"
    return [
        ("group", description.group_id),
        ("state", description.state),
        *kind_facts(description),
        ("protocol", protocol),
        ("coordinator", str(description.coordinator)),
        ("members", format_number(len(description.members))),
        ("lag", describe_lag(entries)),
        *([] if guarded_until_ms is None else [("reset guarded until", format_until(guarded_until_ms))]),
    ]


def kind_facts(description: GroupDescription) -> list[tuple[str, str]]:
    """The facts about a group that is not classic."""
    epochs = description.epochs
    if epochs is None:
        return []
    assigned = "" if epochs.assignment == epochs.group else f", assigned for epoch {epochs.assignment}"
    return [("type", description.group_type), ("epoch", f"{epochs.group}{assigned}")]


def describe_lag(entries: Sequence[PartitionLag]) -> str:
    """The total lag, and the number of partitions with a known lag: it needs a committed offset."""
    lag, known_count = total_lag(entries), sum(entry.lag is not None for entry in entries)
    if lag is None:
        return "-"
    partitions = format_count(len(entries), "partition")
    if known_count < len(entries):
        partitions = f"{known_count} of {partitions}"
    return f"{format_count(lag, 'record')} in {partitions}"


@app.command("explain")
def explain(
    group: GroupId,
    data: Annotated[
        Path | None,
        typer.Option(
            "--data",
            metavar="DIR",
            envvar="CALLBOARD_DATA",
            help="Read the data folder of the server that coordinates the group, running or not, instead of asking it.",
        ),
    ] = None,
    limit: Annotated[int, typer.Option(min=1, max=50, help="How many of the last rebalances to show.")] = 10,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Say why a group rebalanced: in one sentence, with its last rebalances, and what looks wrong.

    It asks a Callboard server, in a cluster the node that has the group. With --data it reads the records in the
    folder events of its data folder, on the same machine. They end about a second ago.
    """
    from .explain import ask_for_explanation, print_explanation, read_explanation  # imports more than the help needs

    if data is not None:
        explanation = read_explanation(group, data, limit)
    else:
        with connect(bootstrap_server, timeout) as cluster:
            explanation = ask_for_explanation(cluster, group, limit)
    print_explanation(group, explanation, as_json=as_json)


@app.command("offsets")
def offsets(
    group: GroupId,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    as_json: AsJson = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="Print topic,partition,offset, for reset --from-file.")] = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Show the committed offsets of a group, and their distance from the end."""
    if as_csv and as_json:
        raise StartError("expected --json or --csv, not both")
    with connect(bootstrap_server, timeout) as cluster:
        entries = read_partition_lags(cluster, group)
        if not entries:
            cluster.describe(group)  # raises if the group does not exist
    table = offset_table(entries, with_members=False)
    if as_csv:
        rows = [(*entry.topic_partition, entry.committed.offset) for entry in entries if entry.committed is not None]
        csv.writer(csv_stream(), lineterminator="\n").writerows(rows)
    else:
        show_rows(table, f"group '{group}' has no offsets", as_json=as_json)


@app.command("reset")
def reset(
    group: GroupId,
    topic: Annotated[
        list[str] | None, typer.Option(metavar="T[:P,...]", help="A topic, or some of its partitions; may be repeated.")
    ] = None,
    all_topics: Annotated[
        bool, typer.Option("--all-topics", help="All partitions for which the group has offsets.")
    ] = False,
    to_earliest: Annotated[bool, typer.Option("--to-earliest", help="To the first record.")] = False,
    to_latest: Annotated[bool, typer.Option("--to-latest", help="To the end, after the last record.")] = False,
    to_offset: Annotated[int | None, typer.Option(help="To this offset.")] = None,
    shift_by: Annotated[
        int | None, typer.Option(help="Forward by so many records, or back (a negative number).")
    ] = None,
    to_datetime: Annotated[
        str | None, typer.Option(metavar="ISO", help="To the first record of this time or later; UTC without a zone.")
    ] = None,
    from_file: Annotated[
        Path | None, typer.Option(metavar="CSV", help="To the offsets in lines of topic,partition,offset.")
    ] = None,
    to_offsets_of: Annotated[str | None, typer.Option(metavar="GROUP", help="To the offsets of another group.")] = None,
    execute: Execute = False,
    evict: Annotated[
        bool, typer.Option("--evict", help="Remove all members, in the same step. Needs --http-api.")
    ] = False,
    http_api: HttpApiUrl = None,
    reason: Reason = "reset by an operator",
    wait: Wait = 60.0,
    create: Annotated[bool, typer.Option("--create", help="Create the group if it does not exist.")] = False,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Move the offsets of a group. A dry run, unless --execute is given.

    A group with members needs --evict, by which a Callboard server removes them in the same step. They join again, and
    go on at the new offsets. The command waits until all are back.
    """
    target = choose_target(to_earliest, to_latest, to_offset, shift_by, to_datetime, from_file, to_offsets_of)
    selected = [parse_topic(text) for text in topic or ()]
    check_selection(target, bool(selected), all_topics)
    if evict:
        api = open_api(http_api, timeout, NEEDS_API)
        reset_live(api, group, targets_json(api, group, target, selected), reason, execute, as_json, wait)
        return
    with connect(bootstrap_server, timeout) as cluster:
        check_resettable(cluster, group, create)
        committed = cluster.committed(group)
        topic_partitions = target_partitions(cluster, target, selected, committed)
        changes = plan_reset(topic_partitions, committed, bounds_of(cluster, topic_partitions, target), target)
        refused = (
            cluster.commit(group, {change.topic_partition: change.after for change in changes})
            if execute and changes
            else {}
        )
    print_changes(group, changes, execute, as_json)
    raise_if_refused(refused, len(changes))


def check_selection(target: ResetTarget, has_topics: bool, all_topics: bool) -> None:
    """Raise StartError unless exactly one selection of partitions is given."""
    selections = [has_topics, all_topics, target.mode is ResetMode.FILE]
    if sum(selections) != 1:
        raise StartError("expected what to reset: --topic T[:P,...], or --all-topics, or --from-file CSV, and only one")


def check_resettable(cluster: Cluster, group: str, create: bool) -> None:
    """Raise ClientError unless the group exists, or may be created, and has no members."""
    try:
        description = cluster.describe(group)
    except RefusedError as refused:
        if refused.code != ErrorCode.GROUP_ID_NOT_FOUND:
            raise
        if not create:
            raise ClientError(f"{refused}; --create creates it") from refused
        return
    if description.state not in ("Empty", "Dead"):
        raise ClientError(
            f"group '{group}' is {description.state} with {format_count(len(description.members), 'member')}: "
            "stop its consumers first, because they would overwrite the new offsets "
            "(a killed consumer is a member until its session ends), or let a Callboard server remove them (--evict)"
        )


def target_partitions(
    cluster: Cluster,
    target: ResetTarget,
    selected: Iterable[tuple[str, tuple[int, ...] | None]],
    committed: dict[TopicPartition, OffsetAndMetadata],
) -> list[TopicPartition]:
    if target.mode is ResetMode.FILE:
        return sorted(target.file_offsets)
    topic_partitions: dict[TopicPartition, None] = {}
    for topic, partitions in selected:
        existing = cluster.partitions(topic)
        for partition in existing if partitions is None else partitions:
            topic_partitions[topic, partition] = None
    return sorted(topic_partitions or committed)


def bounds_of(cluster: Cluster, topic_partitions: Sequence[TopicPartition], target: ResetTarget) -> OffsetBounds:
    at_time = cluster.list_offsets(topic_partitions, target.number) if target.mode is ResetMode.DATETIME else {}
    return OffsetBounds(
        cluster.list_offsets(topic_partitions, EARLIEST),
        cluster.list_offsets(topic_partitions, LATEST),
        at_time,
        cluster.committed(target.group) if target.mode is ResetMode.GROUP else {},
    )


def print_changes(group: str, changes: Sequence[OffsetChange], is_written: bool, as_json: bool) -> None:
    table = change_table(changes)
    if as_json:
        print_json({"group": group, "executed": is_written, "offsets": table.as_json()})
        return
    if changes:
        print_table(table)
    kind = f"{format_count(len(changes), 'offset')} of group '{group}'"
    print_line(f"{kind} written" if is_written else f"dry run: {kind} would be written; --execute writes them")


def raise_if_refused(refused: dict[TopicPartition, int], total: int) -> None:
    """Raise ClientError if partitions were refused. It names the first one."""
    if refused:
        (topic, partition), code = next(iter(refused.items()))
        raise ClientError(f"{len(refused)} of {total} refused, {topic}:{partition} first: {describe_error_code(code)}")


for command in (resets, watch, undo):
    app.command(command.__name__)(command)


@app.command("evict")
def evict_members(
    group: GroupId,
    members: Annotated[
        list[str] | None, typer.Argument(metavar="[MEMBER...]", help="Member ids, or instance ids of static members.")
    ] = None,
    all_members: Annotated[bool, typer.Option("--all", help="All members of the group.")] = False,
    reason: Reason = "removed by an operator",
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Remove members from a group, which rebalances. A consumer that is alive joins again."""
    if bool(members) == all_members:
        raise StartError("expected which members to remove: MEMBER..., or --all, and only one")
    with connect(bootstrap_server, timeout) as cluster:
        present = cluster.describe(group).members
        removed = present if all_members else [find_member(group, name, present) for name in members or ()]
        if removed:
            cluster.remove_members(group, removed, reason)
    ids = [member.member_id for member in removed]
    if as_json:
        print_json({"group": group, "removed": ids})
    else:
        print_line(f"{format_count(len(ids), 'member')} of group '{group}' removed")


def find_member(group: str, name: str, members: Sequence[MemberDescription]) -> MemberDescription:
    """The member with a member id or instance id. Raises ClientError."""
    for member in members:
        if name in (member.member_id, member.group_instance_id):
            return member
    names = [text for member in members for text in (member.member_id, member.group_instance_id) if text]
    raise ClientError(
        f"group '{group}' has no member '{name}':{did_you_mean(name, names)} `callboard groups describe` shows all"
    )


@app.command("delete")
def delete(
    groups: Annotated[list[str], typer.Argument(metavar="GROUP...")],
    offsets: Annotated[
        list[str] | None,
        typer.Option(metavar="T[:P,...]", help="Delete only these offsets of the group; may be repeated."),
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Delete groups without members, with all their offsets; or, with --offsets, only these offsets of one group."""
    selected = [parse_topic(text) for text in offsets or ()]
    if selected and len(groups) != 1:
        raise StartError(f"--offsets is for one group, not for {len(groups)}")
    with connect(bootstrap_server, timeout) as cluster:
        if selected:
            delete_offsets(cluster, groups[0], selected, as_json)
        else:
            delete_groups(cluster, list(dict.fromkeys(groups)), as_json)


def delete_offsets(
    cluster: Cluster, group: str, selected: Iterable[tuple[str, tuple[int, ...] | None]], as_json: bool
) -> None:
    committed = cluster.committed(group)
    topic_partitions: dict[TopicPartition, None] = {}
    for topic, partitions in selected:
        committed_partitions = [topic_partition for topic_partition in committed if topic_partition[0] == topic]
        topic_partitions.update(
            dict.fromkeys(committed_partitions if partitions is None else [(topic, text) for text in partitions])
        )
        if partitions is None and not committed_partitions:
            cluster.describe(group)
            raise ClientError(f"group '{group}' has no offsets for topic '{topic}'")
    refused = cluster.delete_offsets(group, topic_partitions)
    deleted = [topic_partition for topic_partition in topic_partitions if topic_partition not in refused]
    if as_json:
        print_json({"group": group, "deleted": [{"topic": topic, "partition": text} for topic, text in deleted]})
    else:
        print_line(f"{format_count(len(deleted), 'offset')} of group '{group}' deleted")
    raise_if_refused(refused, len(topic_partitions))


def delete_groups(cluster: Cluster, groups: Sequence[str], as_json: bool) -> None:
    """Delete each group. The first refusal sets the exit code after the others have been tried."""
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
    return run_app(app, argv, "callboard groups")
