"""``callboard groups explain``: why a group rebalanced, from a server or from the files that it writes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

from ....actors.recorder.explanation import Explanation, explain, explanation_json
from ....actors.recorder.flight_recorder import RECORDS_KEPT
from ....actors.recorder.now import GroupNow
from ....actors.recorder.record import MemberName, RebalanceRecord
from ....actors.recorder.texts import duration, who
from ....actors.text import format_count
from ...client.cluster import Cluster
from ...client.errors import ClientError
from ...client.explaining import read_recorded
from ...common.errors import StartError
from ...common.printing import print_error, print_json, print_line
from ...node.event_files import FOLDER, read_records
from ..log.dump import format_time
from ..tables import Column, Table, format_number, print_facts, print_table

COLUMNS = (
    Column("ended", "ended"),
    Column("generation", "generation", is_number=True),
    Column("outcome", "outcome"),
    Column("cause", "cause"),
    Column("by", "by", may_shorten=True),
    Column("duration", "took"),
    Column("longest_phase", "longest phase"),
    Column("moved", "moved"),
    Column("late", "last to come", may_shorten=True),
)


MEMBER_COLUMNS = (
    Column("member", "member", may_shorten=True),
    Column("instance", "instance"),
    Column("client", "client", may_shorten=True),
    Column("host", "host"),
    Column("principal", "principal"),
    Column("software", "software"),
)
"""Of the members that the group has now."""


NONE_BEFORE = "It is the first rebalance since the server was started or took over the group."

FAR_MS = 10 * 365 * 24 * 3_600_000
"""A coordinator in memory keeps offsets for longer."""

LAG_UNKNOWN = "not known: the server that has the group has not all of its topics, or you may not describe them"
TOPICS_UNTOLD = "you may not describe some that members subscribe to, so it is not told whether these exist:"


def print_explanation(group: str, explanation: Explanation, *, as_json: bool) -> None:
    if as_json:
        print_json({"group": group, **explanation_json(explanation)})
        return
    print_line(explanation.sentence)
    if explanation.rebalances:
        print_line()
        print_table(Table(COLUMNS, list(map(_row, explanation.rebalances))))
    elif explanation.now is not None and explanation.now.rebalance is not None:
        print_line(NONE_BEFORE)
    if explanation.now is not None and explanation.now.members:
        print_line()
        print_table(Table(MEMBER_COLUMNS, list(map(_member_row, explanation.now.members))))
    if facts := _facts(explanation.now):
        print_line()
        print_facts(facts)
    if explanation.findings:
        print_line()
        print_facts([(finding.detector, finding.text) for finding in explanation.findings])


def ask_for_explanation(cluster: Cluster, group: str, limit: int) -> Explanation:
    """Raises ClientError, also for a group that is unknown and has no record."""
    recorded = read_recorded(cluster, group)
    if recorded.now is None and not recorded.records:
        raise ClientError(f"group '{group}': there is no such group")
    return explain(recorded.records, recorded.now, limit)


def read_explanation(group: str, data: Path, limit: int) -> Explanation:
    """Raises StartError if the files cannot be read, or have nothing about the group."""
    try:
        records = list(islice(read_records(data, group, _warn_of_skipped), RECORDS_KEPT))
    except OSError as error:
        raise StartError(f"cannot read the records of rebalances in '{data / FOLDER}': {error.strerror}") from error
    if not records:
        raise StartError(
            f"no rebalance of group '{group}' is recorded in '{data / FOLDER}': expected the data folder of the server "
            "that coordinates the group (serve --data), which writes a record about a second after each rebalance"
        )
    return explain(records, GroupNow(time.time_ns() // 1_000_000, "", 0), limit)


def _warn_of_skipped(path: Path, found: str) -> None:
    print_error(f"warning: '{path}' is left out: found {found}, expected a file")


def _member_row(member: MemberName) -> Sequence[str | None]:
    host, principal, software = member.client_host.removeprefix("/"), member.principal, member.software
    return member.member_id, member.instance_id, member.client_id, host, principal or None, software or None


def _facts(now: GroupNow | None) -> list[tuple[str, str]]:
    """What is known of the group's offsets and topics, and what is not."""
    facts: list[tuple[str, str]] = []
    if now is not None and now.offsets is not None and now.offsets.offset_count:
        first_ms, lag = now.offsets.first_expires_ms, now.offsets.lag
        has_end = first_ms is not None and first_ms - now.now_ms < FAR_MS
        until = f"; the first expires in {duration(first_ms - now.now_ms)}" if has_end and first_ms is not None else ""
        facts.append(("offsets", f"{format_number(now.offsets.offset_count)} committed{until}"))
        if not now.member_count:
            facts.append(("lag", LAG_UNKNOWN if lag is None else format_count(lag, "record")))
    topics = None if now is None else now.subscriptions.topics
    if topics is not None and topics.untold:
        facts.append(("topics", f"{TOPICS_UNTOLD} {format_count(topics.untold, 'topic')}"))
    return facts


def _row(record: RebalanceRecord) -> Sequence[str | int | None]:
    late, phase, moves = record.members.late, record.longest_phase, record.moves
    return (
        format_time(record.ended_ms),
        record.generation,
        record.outcome,
        record.why.cause,
        None if record.why.by is None else who(record.why.by),
        duration(record.duration_ms),
        None if phase is None else f"{phase[0]} {duration(phase[1])}",
        None if moves is None else f"{moves.moved} of {moves.total}",
        f"{who(late[0].member)} after {duration(late[0].after_ms)}" if late else None,
    )
