"""The answer to ExplainGroup for another process: with the records, and what this server knows of the topics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from ...actors.messages import Explained, Fetched, FetchedOffset, OffsetFetch
from ...actors.recorder.flight_recorder import FlightRecorder
from ...actors.recorder.now import GroupNow
from ...actors.recorder.recorded import GroupRecorded
from ...actors.steps import Steps
from ..engine.reply import Reply
from ..topics.known import lag_in_steps, needs_lag, with_lag, with_missing_topics
from ..topics.ranges import ranges_in_steps
from .authorization.authorize import authorize_in_steps
from .authorization.checks import LISTED_TOPIC
from .call import Call


class ToExplain(NamedTuple):
    """``fetched``: the committed offsets, if the lag is wanted."""

    explained: Explained
    fetched: Sequence[tuple[str, Sequence[FetchedOffset]]] = ()


class Explaining:
    """Gets the reply to ExplainGroup, and then the offsets, and passes them on as ``ToExplain``.

    Before that, the rebalances so far get their records.
    """

    def __init__(self, call: Call, recorder: FlightRecorder) -> None:
        self._call = call
        self._recorder = recorder
        self._explained: Explained | None = None

    def set(self, value: Any = None) -> None:
        if isinstance(value, Fetched):
            assert self._explained is not None
            self._call.set(ToExplain(self._explained, value.topics))
        else:
            self._recorder.background.run(_nothing, lambda _none: self._recorded(value))

    def _recorded(self, explained: Explained) -> None:
        self._explained = explained
        if explained.now is None or not needs_lag(explained.now):
            self._call.set(ToExplain(explained))
        else:
            self._call.services.groups.post(OffsetFetch(self._call.request.group_id, None), self)

    def set_exception(self, exc_info: Any = None) -> None:
        self._call.set_exception(exc_info)

    def wait_for_room(self, room: Reply) -> None:
        self._call.wait_for_room(room)


def _nothing() -> None:
    """It is done after all work before it."""


def recorded_in_steps(
    call: Call, recorder: FlightRecorder, answer: ToExplain, *, is_node: bool
) -> Steps[GroupRecorded]:
    """``is_node``: it may be told of all topics."""
    group_id, (error, now) = call.request.group_id, answer.explained
    if error:
        return GroupRecorded(error, now, ())
    if now is None:
        now = recorder.absent(group_id, call.services.clock.wall_ms())
    else:
        now = yield from _with_topics(call, now, answer, is_node)
    return GroupRecorded(error, now, recorder.records(group_id))


def _with_topics(call: Call, now: GroupNow, answer: ToExplain, is_node: bool) -> Steps[GroupNow]:
    get = call.services.topics.get
    allows: Callable[[str], bool] = _everything
    fetched = [topic for topic, _ in answer.fetched]
    if not is_node:
        topics = now.subscriptions.topics
        names = (*(() if topics is None else topics.subscribed), *fetched)
        allows = (yield from authorize_in_steps(call, LISTED_TOPIC, names)).allows
    now = with_missing_topics(now, lambda name: get(name) is not None, allows)
    if not fetched:
        return now
    ranges = yield from ranges_in_steps(get(name) for name in fetched if allows(name))
    ends = {name: known for name, (_, known) in ranges.items()}
    return with_lag(now, (yield from lag_in_steps(answer.fetched, ends)))


def _everything(_name: str) -> bool:
    return True
