"""Whether a reset can be undone: by which rules it is refused. Pure.

An undo sets the offsets that were there before, exactly. A new rule is a function, and a row in ``RULES``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.steps import Steps, pieces
from ..node.reset_records import ResetPartition, ResetRecord
from .results import TopicDescription, TopicPartition


class UnknownChange(CoordinatorError):
    """There is no record of a change with this id."""

    def __init__(self, change_id: str) -> None:
        super().__init__(
            ErrorCode.INVALID_REQUEST,
            f"change {change_id!r}: there is no record of it here; the last 100 resets have one, in the data folder of"
            " the server that made them",
        )


class UndoRefused(CoordinatorError):
    """A reset cannot be undone safely. The text says why."""

    def __init__(self, change_id: str, reason: str) -> None:
        super().__init__(ErrorCode.INVALID_REQUEST, f"change {change_id} cannot be undone: {reason}")


class Now(NamedTuple):
    """What is known now. ``later``: resets of the group since then. ``topics``: by name; None: it was deleted."""

    later: tuple[ResetRecord, ...]
    committed: Mapping[TopicPartition, int]
    topics: Mapping[str, TopicDescription | None]


def check_undo(record: ResetRecord, now: Now) -> Steps[None]:
    """Raises UndoRefused if the undo is not safe."""
    for rule in RULES:
        reason = yield from rule(record, now)
        if reason:
            raise UndoRefused(record.change_id, reason)


def later_resets(record: ResetRecord, of_group: Iterable[ResetRecord]) -> tuple[ResetRecord, ...]:
    """Those after a reset, the newest first. ``of_group``: all of the group, the newest first."""
    later: list[ResetRecord] = []
    for each in of_group:
        if each.change_id == record.change_id:
            break
        later.append(each)
    return tuple(later)


Rule = Callable[[ResetRecord, Now], Steps[str]]
"""Returns why a reset is not undone; "" if the rule allows it."""


def _was_undone(record: ResetRecord, now: Now) -> Steps[str]:
    yield
    by = next((each.change_id for each in now.later if each.undoes == record.change_id), "")
    return by and f"it was undone by change {by} already"


def _was_reset_again(record: ResetRecord, now: Now) -> Steps[str]:
    own: set[TopicPartition] = set()
    for piece in pieces(record.partitions):
        own.update((each.topic, each.partition) for each in piece)
        yield
    for later in now.later:
        for piece in pieces(later.partitions):
            again = next((each for each in piece if (each.topic, each.partition) in own), None)
            if again is not None:
                return f"{_name(again)} was reset again by change {later.change_id}: undo that one first"
            yield
    return ""


def _topic_is_another(record: ResetRecord, now: Now) -> Steps[str]:
    yield
    for name, topic_id in record.topic_ids.items():
        topic = now.topics.get(name)
        if topic is None:
            return f"topic {name!r} was deleted"
        if topic.topic_id.hex != topic_id:
            return f"topic {name!r} was deleted and created again: its offsets mean other records"
    return ""


def _is_gone(each: ResetPartition, now: Now) -> str:
    topic = now.topics.get(each.topic)
    if each.before is None or topic is None or each.partition >= len(topic.partitions):
        return ""
    start, end = topic.partitions[each.partition].start_offset, topic.partitions[each.partition].end_offset
    if start < end and not start <= each.before <= end:
        return f"{_name(each)} was at {each.before} before, but its records are now those from {start} to {end}"
    return ""


def _went_back(each: ResetPartition, now: Now) -> str:
    """Consumers that have gone on since then only raise offsets."""
    committed = now.committed.get((each.topic, each.partition))
    if each.after is not None and committed is None:
        return f"{_name(each)} has no committed offset any more: somebody else has deleted it, or it has expired"
    if each.after is not None and committed is not None and committed < each.after:
        return f"{_name(each)} is at {committed}, before the {each.after} of the reset: somebody else has set it"
    return ""


def _of_partitions(reason_of: Callable[[ResetPartition, Now], str]) -> Rule:
    """The rule that holds for each partition: the reason of the first that it refuses."""

    def rule(record: ResetRecord, now: Now) -> Steps[str]:
        for piece in pieces(record.partitions):
            reason = next(filter(None, (reason_of(each, now) for each in piece)), "")
            if reason:
                return reason
            yield
        return ""

    return rule


RULES: tuple[Rule, ...] = (
    _was_undone,
    _was_reset_again,
    _topic_is_another,
    _of_partitions(_is_gone),
    _of_partitions(_went_back),
)
"""Each returns why the undo is refused; "" if it is not."""


def _name(partition: ResetPartition) -> str:
    return f"{partition.topic}-{partition.partition}"
