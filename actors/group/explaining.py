"""The state of an active group for an explanation."""

from __future__ import annotations

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import Explained, ExplainGroup
from ..recorder.causes import cause_of
from ..recorder.now import GroupNow, OpenNow
from ..recorder.record import name_of
from ..recorder.tracker import RebalanceTracker
from ..steps import SHORT_WORK_ITEMS, Steps, run_steps
from .active_group import ActiveGroup
from .offset_requests import complete_guard

FENCED_WINDOW_MS = 600_000


def explain(active: ActiveGroup, _request: ExplainGroup, _reply: ReplyTo | None) -> object:
    """The explanation, or the work that makes it."""
    active.apply_effects()  # those of heartbeats that were answered at once
    steps = _explain_in_steps(active)
    is_long = not active.guard.is_complete and len(active.data.offsets) > SHORT_WORK_ITEMS
    return steps if is_long else run_steps(steps)


def _explain_in_steps(active: ActiveGroup) -> Steps[Explained]:
    yield from complete_guard(active)
    return _explained(active)


def _explained(active: ActiveGroup) -> Explained:
    clock, waiting, history = active.environment.clock, active.group.waiting(), active.effects.history
    tracker = RebalanceTracker(active.group_id) if history is None else history.tracker
    monotonic_ms, now_ms = clock.monotonic_ms(), clock.wall_ms()
    rebalance, guarded_until_ms = _open(tracker), active.guard.reset_until_ms
    since_ms = now_ms - (monotonic_ms - tracker.phase_ms) if waiting.what and tracker.phase_ms is not None else None
    return Explained(
        ErrorCode.NONE,
        GroupNow(
            now_ms,
            active.group.state_name,
            waiting.generation,
            waiting.what,
            tuple(map(name_of, waiting.missing)),
            waiting.missing_count,
            since_ms,
            None if waiting.until_ms is None else now_ms + waiting.until_ms - monotonic_ms,
            tuple(map(name_of, waiting.members)),
            waiting.member_count,
            rebalance,
            tuple(
                note.group_instance_id for note in tracker.fenced if monotonic_ms - note.monotonic_ms < FENCED_WINDOW_MS
            ),
            guarded_until_ms if guarded_until_ms > now_ms else None,
        ),
    )


def _open(tracker: RebalanceTracker) -> OpenNow | None:
    rebalance = tracker.open
    if rebalance is None:
        return None
    cause = rebalance.cause
    by = name_of(cause) if cause.member_id else None
    name = cause_of(cause.reason, cause.client_reason)
    return OpenNow(cause.wall_ms, name, by, cause.client_reason, rebalance.restarts)
