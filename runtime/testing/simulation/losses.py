"""What a loss of power may take where commits are answered before they are synced, and what it may not.

With ``sync="interval"`` only what was answered within the last interval may be lost, with "none" anything; but of each
group only the end of its story: what survives was there at one moment. So if a commit survives, all that the group was
answered before it survives too: other offsets, and the generation that it belongs to.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import NamedTuple

from ....actors.errors import ErrorCode
from ....actors.group.offsets import GroupData
from ....actors.messages import OffsetCommit, SyncGroup
from .history import Exchange, Listener

Place = tuple[str, int]
Value = tuple[int, str]


class Kept(NamedTuple):
    """Something that was answered: some offsets, and the generation that it belongs to, -1 for none."""

    answered_s: float
    values: dict[Place, Value]
    generation: int
    text: str


class LossChecker(Listener):
    """``fail`` is called with a sentence. Values are told apart by their metadata; none is committed twice."""

    def __init__(self, fail: Callable[[str], None]) -> None:
        self._fail = fail
        self._stories: dict[str, list[Kept]] = defaultdict(list)
        self._before: dict[str, dict[Place, Value]] = {}  # what each story began with

    def answered(self, exchange: Exchange) -> None:
        message, answer = exchange.message, exchange.answer
        if isinstance(message, OffsetCommit):
            values = {
                (one.topic, one.partition): (one.offset, one.metadata)
                for one, error in zip(message.commits, answer.errors, strict=True)
                if error is ErrorCode.NONE
            }
            if values:
                self._keep(exchange, message.group_id, values, message.generation_id)
        elif isinstance(message, SyncGroup) and answer.error is ErrorCode.NONE:
            self._keep(exchange, message.group_id, {}, message.generation_id)

    def _keep(self, exchange: Exchange, group_id: str, values: dict[Place, Value], generation: int) -> None:
        text = f"{exchange.client} #{exchange.number}"
        self._stories[group_id].append(Kept(exchange.answered_s or 0.0, values, generation, text))

    def look(self, groups: Mapping[str, GroupData], safe_s: float) -> None:
        """``groups``: what is left. What was answered before ``safe_s`` must be."""
        stories, self._stories = self._stories, defaultdict(list)
        for group_id, story in stories.items():
            found = groups.get(group_id, GroupData())
            values = {(topic, number): (value.offset, value.metadata) for topic, number, value in found.offsets}
            generation = -1 if found.value is None else found.value.generation
            self._look_at(group_id, story, values, generation, safe_s)
        self._before = {
            group_id: {(topic, number): (value.offset, value.metadata) for topic, number, value in data.offsets}
            for group_id, data in groups.items()
        }

    def _look_at(
        self, group_id: str, story: list[Kept], values: dict[Place, Value], generation: int, safe_s: float
    ) -> None:
        steps: dict[Place, dict[Value, int]] = defaultdict(dict)
        for place, value in self._before.get(group_id, {}).items():
            steps[place][value] = -1
        for number, kept in enumerate(story):
            for place, value in kept.values.items():
                steps[place][value] = number
        survived = max((steps[place].get(value, -1) for place, value in values.items()), default=-1)
        for number, kept in enumerate(story):
            is_safe = kept.answered_s < safe_s
            if number > survived and not is_safe:
                break  # the others are later still
            why = "long enough ago" if is_safe else f"before {story[survived].text}, which is there"
            if kept.generation > generation:
                self._fail(f"{group_id!r}: generation {kept.generation} was answered ({kept.text}) {why}, and is lost")
            for place in kept.values:
                if not _is_there(steps[place], values.get(place), number):
                    told = f"{place} was {kept.values[place]} ({kept.text}), answered {why}"
                    self._fail(f"{group_id!r}: {told}; now it is {values.get(place)}")


def _is_there(steps: Mapping[Value, int], value: Value | None, number: int) -> bool:
    """Whether what is found is that commit, a later one, or one that was never answered."""
    return value is not None and steps.get(value, number) >= number
