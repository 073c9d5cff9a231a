"""The state of an active group for an explanation."""

from __future__ import annotations

from collections.abc import Iterator, Set
from itertools import islice
from typing import Any

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import Explained, ExplainGroup
from ..recorder.causes import cause_of
from ..recorder.now import GroupNow, OffsetsNow, OpenNow, Refused, RefusedJoin, Subscriptions, TopicsNow, Waiting
from ..recorder.record import NAME_CHARACTERS_MAX, name_of
from ..recorder.tracker import RebalanceTracker
from ..steps import Steps
from .active_group import ActiveGroup
from .expiry import MINUTE_MS, first_expiry_ms
from .offset_requests import complete_guard
from .rebalance_notes import CommitRefused, Fenced, JoinRefused, Refusal

REFUSALS_WINDOW_MS = 600_000
TOPICS_SHOWN = 100


def explain(active: ActiveGroup, _request: ExplainGroup, _reply: ReplyTo | None) -> Steps[Explained]:
    """The work that makes the explanation."""
    active.apply_effects()  # those of heartbeats that were answered at once
    return _explain_in_steps(active)


def _explain_in_steps(active: ActiveGroup) -> Steps[Explained]:
    yield from complete_guard(active)
    offsets = yield from _offsets(active)
    topics = yield from _topics(active)
    votes = yield from active.group.votes()
    recorder, now = active.environment.event_log.recorder, _group_now(active)
    offsets = offsets._replace(expired=recorder.expiries.find(active.group_id))
    now = now._replace(offsets=offsets, subscriptions=Subscriptions(topics, votes))
    return Explained(ErrorCode.NONE, recorder.clients.complete(active.group_id, now))


def _group_now(active: ActiveGroup) -> GroupNow:
    clock, waiting, history = active.environment.clock, active.group.waiting(), active.effects.history
    tracker = RebalanceTracker(active.group_id) if history is None else history.tracker
    monotonic_ms, now_ms = clock.monotonic_ms(), clock.wall_ms()
    since_ms = now_ms - (monotonic_ms - tracker.phase_ms) if waiting.what and tracker.phase_ms is not None else None
    now = _with_waiting(GroupNow(now_ms, active.group.state_name, waiting.generation), waiting)
    return now._replace(
        missing_since_ms=since_ms,
        until_ms=None if waiting.until_ms is None else now_ms + waiting.until_ms - monotonic_ms,
        rebalance=_open(tracker),
        guarded_until_ms=active.guard.guarded_until_ms(now_ms),
        refused=Refused(
            tuple(
                RefusedJoin(name_of(note.member), note.offers) for note in _recent(tracker, JoinRefused, monotonic_ms)
            ),
            tuple(note.member_id for note in _recent(tracker, CommitRefused, monotonic_ms)),
            tuple(note.group_instance_id for note in _recent(tracker, Fenced, monotonic_ms)),
            tuple(name[:NAME_CHARACTERS_MAX] for name in waiting.assignors),
        ),
    )


def _with_waiting(now: GroupNow, waiting: Waiting) -> GroupNow:
    return now._replace(
        waits_for=waiting.what,
        missing=tuple(map(name_of, waiting.missing)),
        missing_count=waiting.missing_count,
        members=tuple(map(name_of, waiting.members)),
        member_count=waiting.member_count,
    )


def _recent(tracker: RebalanceTracker, kind: type[Refusal], monotonic_ms: int) -> Iterator[Any]:
    notes = tracker.refusals.get(kind, ())
    return (note for note in notes if monotonic_ms - note.monotonic_ms < REFUSALS_WINDOW_MS)


def _offsets(active: ActiveGroup) -> Steps[OffsetsNow]:
    retention_ms = active.environment.settings.offsets_retention_minutes * MINUTE_MS
    first_ms = yield from first_expiry_ms(active.group, active.data, retention_ms)
    return OffsetsNow(len(active.data.offsets), first_ms)


def _topics(active: ActiveGroup) -> Steps[TopicsNow | None]:
    """None also for a group that may subscribe to every topic, as far as is known."""
    topics = yield from active.group.subscribed_topics()
    if not isinstance(topics, Set):
        return None
    return TopicsNow(tuple(sorted(islice(topics, TOPICS_SHOWN))))


def _open(tracker: RebalanceTracker) -> OpenNow | None:
    rebalance = tracker.open
    if rebalance is None:
        return None
    cause = rebalance.cause
    by = name_of(cause) if cause.member_id else None
    name = cause_of(cause.reason, cause.client_reason)
    return OpenNow(cause.wall_ms, name, by, cause.client_reason, rebalance.restarts)
