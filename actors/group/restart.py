"""Start and restart of an active group from its durable state, and the requests that wait meanwhile."""

from __future__ import annotations

import logging
from typing import Any

from ..base import requeue_first
from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import FinishLoad
from ..steps import Steps, run_steps
from .active_group import ActiveGroup
from .change_of_kind import downgrade
from .contexts import APPEND_ERRORS, NewGroupContext, ResetContext, deliver_error
from .decisions import DecisionsContext
from .deletion import abort_deletion, append_tombstones_when_idle
from .effects import Effects
from .events import Reason
from .offset_requests import reply_to_fetches

log = logging.getLogger("callboard.actors")


def start(active: ActiveGroup) -> None:
    """Load the durable state into the new ``group``. If it has many members, the next message finishes that."""
    if active.data.value is not None:
        active.group.load(active.data.value, active.effects)
    active.apply_effects()
    if active.effects.work:
        requeue_first(active.actor.actor_inbox, [(FinishLoad(), None)])
    else:
        run_steps(resume_in_flight(active))


def resume_in_flight(active: ActiveGroup) -> Steps[None]:
    """Continue fetches and a deletion whose earlier appends are done."""
    in_flight = active.in_flight
    if in_flight.fetches:
        yield from reply_to_fetches(active)
    if in_flight.deletion is not None:
        append_tombstones_when_idle(active, in_flight.deletion)


def reload(active: ActiveGroup, error: ErrorCode = ErrorCode.COORDINATOR_NOT_AVAILABLE) -> None:
    """Restart from the durable state. Parked requests get ``error``."""
    active.close(error, Reason.RESTARTED)
    active.in_flight.stale_appends = active.in_flight.appends_sent
    active.group = active.make_group()
    start(active)


def handle_group_record_written(active: ActiveGroup, context: Any, log_error: ErrorCode) -> None:
    """Records of the group itself, rather than of its offsets, are durable, or could not be appended."""
    error, data = APPEND_ERRORS.get(log_error, log_error), active.data
    is_stale = active.in_flight.appends_done <= active.in_flight.stale_appends
    answer = getattr(context, "answer", None)
    if answer is not None and not (log_error is ErrorCode.MESSAGE_TOO_LARGE and not is_stale and _divides(context)):
        answer(log_error)
    if is_stale:
        reload(active)  # sent by an earlier instance: ``data`` contains it now
    elif active.in_flight.appends_done <= active.appends_before_change:
        pass  # sent by the group of another kind whose place ``group`` has taken
    elif error is ErrorCode.NONE and active.group.type != data.type and downgrade(active):
        pass
    elif active.group.type != data.type:
        reload(active, error or ErrorCode.COORDINATOR_NOT_AVAILABLE)  # the change of its kind failed, or is not durable
    elif error is not ErrorCode.NONE and isinstance(context, NewGroupContext):
        reload(active, error)
    elif error is not ErrorCode.NONE:
        environment = active.environment
        environment.event_log.log_refused_record("group", active.group_id, error, environment.clock.monotonic_ms())
        if isinstance(context, ResetContext) and context.value.removed:
            reload(active)
        else:
            active.group.append_failed(context, log_error, active.effects)
    elif data.value is not None:
        active.group.appended(data.value, context, active.effects)
    active.apply_effects()


def _divides(context: Any) -> bool:
    return getattr(context, "is_divisible", False)


def reply_to_all(active: ActiveGroup, current: ReplyTo | None, bug: Exception) -> None:
    """Replies that were not sent yet become the bug; parked requests get COORDINATOR_NOT_AVAILABLE. Each only once.

    ``current``: of the message whose handler had the bug. Its sender has got its reply already, but may also be among
    them.
    """
    replied: set[int] = {id(current)}
    effects, active.effects = active.effects, Effects(active.environment.counters, active.effects.history)
    active.effects.events = effects.events
    unsent = effects.context.replies if isinstance(effects.context, DecisionsContext) else ()
    requeued = (reply for _request, reply in effects.requeued)
    for reply in (*(answer.reply for answer in effects.answers), *unsent, *requeued):
        if id(reply) not in replied:
            replied.add(id(reply))
            deliver_error(reply, bug)
    active.idle.cancel(active.effects)
    try:
        active.group.close(ErrorCode.COORDINATOR_NOT_AVAILABLE, Reason.RESTARTED, active.effects)
        active.effects.finish_work()
    except Exception:
        log.exception("group %r could not reply to all parked requests", active.group_id)
    active.effects.answers = [answer for answer in active.effects.answers if id(answer.reply) not in replied]
    abort_deletion(active, replied)
    active.apply_effects()
