"""Checks the effects of a power loss if commits are answered before they are synced.

With ``sync="interval"`` a loss may drop only changes answered within the last interval, with "none" any change. In both
cases it drops only the newest changes of a group: the surviving state is a state that existed at one moment. So if a
commit survives, everything answered to the group before it survives too: other offsets, and its generation.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ....actors.errors import ErrorCode
from ....actors.group.offsets import GroupData
from ....actors.messages import OffsetCommit, SyncGroup
from .history import Exchange, Listener

TopicPartition = tuple[str, int]
Value = tuple[int, str]


class AnsweredChange(NamedTuple):
    """An answered change: offsets, and the generation that it belongs to, -1 for none."""

    answered_s: float
    values: dict[TopicPartition, Value]
    generation: int
    text: str


class LossChecker(Listener):
    """``fail`` is called with a text. Values are identified by their metadata, which no two commits share."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._changes: dict[str, list[AnsweredChange]] = defaultdict(list)
        self._initial_values: dict[str, dict[TopicPartition, Value]] = {}  # at the last check

    def answered(self, exchange: Exchange) -> None:
        message, answer = exchange.message, exchange.answer
        if isinstance(message, OffsetCommit):
            values = {
                (commit.topic, commit.partition): (commit.offset, commit.metadata)
                for commit, error in zip(message.commits, answer.errors, strict=True)
                if error is ErrorCode.NONE
            }
            if values:
                self._record(exchange, message.group_id, values, message.generation_id)
        elif isinstance(message, SyncGroup) and answer.error is ErrorCode.NONE:
            self._record(exchange, message.group_id, {}, message.generation_id)

    def _record(self, exchange: Exchange, group_id: str, values: dict[TopicPartition, Value], generation: int) -> None:
        text = f"{exchange.client} #{exchange.number}"
        self._changes[group_id].append(AnsweredChange(exchange.answered_s or 0.0, values, generation, text))

    def check_survivors(self, groups: Mapping[str, GroupData], safe_s: float) -> None:
        """``groups``: the state after the loss. Changes answered before ``safe_s`` must have survived."""
        changes_by_group, self._changes = self._changes, defaultdict(list)
        for group_id, changes in changes_by_group.items():
            group = groups.get(group_id, GroupData())
            values = {(topic, number): (value.offset, value.metadata) for topic, number, value in group.offsets}
            generation = -1 if group.value is None else group.value.generation
            self._check_group(group_id, changes, values, generation, safe_s)
        self._initial_values = {
            group_id: {(topic, number): (value.offset, value.metadata) for topic, number, value in data.offsets}
            for group_id, data in groups.items()
        }

    def _check_group(
        self,
        group_id: str,
        changes: list[AnsweredChange],
        values: dict[TopicPartition, Value],
        generation: int,
        safe_s: float,
    ) -> None:
        steps: dict[TopicPartition, dict[Value, int]] = defaultdict(dict)
        for topic_partition, value in self._initial_values.get(group_id, {}).items():
            steps[topic_partition][value] = -1
        for number, change in enumerate(changes):
            for topic_partition, value in change.values.items():
                steps[topic_partition][value] = number
        last_survivor = max(
            (steps[topic_partition].get(value, -1) for topic_partition, value in values.items()), default=-1
        )
        for number, change in enumerate(changes):
            is_safe = change.answered_s < safe_s
            if number > last_survivor and not is_safe:
                break  # all later changes may be lost, too
            why = "long enough ago" if is_safe else f"before {changes[last_survivor].text}, which is there"
            if change.generation > generation:
                self._fail(
                    f"{group_id!r}: generation {change.generation} was answered ({change.text}) {why}, and is lost"
                )
            for topic_partition in change.values:
                if not _is_present(steps[topic_partition], values.get(topic_partition), number):
                    description = (
                        f"{topic_partition} was {change.values[topic_partition]} ({change.text}), answered {why}"
                    )
                    self._fail(f"{group_id!r}: {description}; now it is {values.get(topic_partition)}")


def _is_present(steps: Mapping[Value, int], value: Value | None, number: int) -> bool:
    """Whether the found value is that commit, a later one, or one that was not answered."""
    return value is not None and steps.get(value, number) >= number
