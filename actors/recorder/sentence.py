"""One sentence about a group: why it rebalanced, what took longest, and who is missing now. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..group.events import DEAD_NAME
from ..text import format_count
from .causes import OTHER, TEXTS
from .now import GroupNow
from .record import MemberName, RebalanceRecord
from .texts import clock_time, duration, who

LENGTH_MAX = 200
LONG_PHASE_MS = 1000
"""A phase that was shorter is not worth a clause."""

OLD_MS = 12 * 3_600_000
"""From then on the time of the day does not say when a rebalance was."""

NO_RECORD = "No rebalance is recorded since the server was started or took over the group"

PHASE_TEXTS = {
    "initial_delay": "the wait for more members took {}",
    "join": "its members took {} to rejoin",
    "leader_assigns": "its leader took {} to assign",
    "log": "the log took {} to store the assignment",
    "followers": "its members took {} to ask for their assignment",
    "assign": "the assignor took {}",
    "reconcile": "its members took {} to hand over partitions",
}

STATE_TEXTS = {
    "Stable": "it is stable with {}",
    "Empty": "it has no members",
    DEAD_NAME: "the group does not exist any more",
}


def sentence(records: Sequence[RebalanceRecord], now: GroupNow | None) -> str:
    """``records``: those of the group, the newest first. ``now``: None if the group does not exist.

    At most 200 characters. Clauses that do not fit are left out, the last one first, but never the cause.
    """
    first, *others = _clauses(records[0] if records else None, now)
    text = first[:LENGTH_MAX]
    for clause in others:
        if clause and len(text) + len(clause) + 3 <= LENGTH_MAX:
            text += f"; {clause}"
    return f"{text[: LENGTH_MAX - 1]}."


def _clauses(record: RebalanceRecord | None, now: GroupNow | None) -> Iterator[str]:
    """In the order of the text. The most important ones come first."""
    if now is not None and now.rebalance is not None:
        open_now = now.rebalance
        yield f"Rebalancing since {clock_time(open_now.began_ms)} UTC, because {_cause(open_now.cause, open_now.by)}"
        yield _waits(now)
        return
    if record is None:
        yield NO_RECORD if now is not None else "There is no such group, and no rebalance is recorded"
    else:
        yield _ended(record, now)
    yield _now(now)
    if record is not None:
        yield _longest(record)


def _ended(record: RebalanceRecord, now: GroupNow | None) -> str:
    what = {"stable": "Rebalanced", "empty": "Became empty"}.get(record.outcome, "A rebalance was interrupted")
    age_ms = 0 if now is None else now.now_ms - record.ended_ms
    when = f"{clock_time(record.ended_ms)} UTC" + (f", {duration(age_ms)} ago" if age_ms >= OLD_MS else "")
    return f"{what} at {when}, because {_cause(record.why.cause, record.why.by)}"


def _cause(cause: str, by: MemberName | None) -> str:
    return TEXTS.get(cause, TEXTS[OTHER]).format(who=who(by))


def _longest(record: RebalanceRecord) -> str:
    phase = record.longest_phase
    if phase is None or phase[1] < LONG_PHASE_MS or phase[0] not in PHASE_TEXTS:
        return ""
    return PHASE_TEXTS[phase[0]].format(duration(phase[1]))


def _now(now: GroupNow | None) -> str:
    if now is None or not now.state:
        return ""
    if now.waits_for:
        return _waits(now)
    return STATE_TEXTS.get(now.state, f"it is {now.state}").format(format_count(now.member_count, "member"))


def _waits(now: GroupNow) -> str:
    if not now.waits_for:
        return ""
    until = "" if now.until_ms is None else f" until {clock_time(now.until_ms)}"
    if not now.missing:
        return f"it waits{until} for {now.waits_for}"
    others = f" and {now.missing_count - 1} more" if now.missing_count > 1 else ""
    return f"it waits{until} for {now.waits_for}: {who(now.missing[0])}{others}"
