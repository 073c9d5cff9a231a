"""The functions that handle requests to an active group. ``requests.REQUESTS`` names the one of each class."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import GeneratorType
from typing import Any

from ..engine_ports import ReplyTo
from ..errors import ErrorCode
from ..messages import DescribedEvents, DescribeEvents, GroupRequest
from ..steps import Steps
from .active_group import ActiveGroup
from .contexts import NewGroupContext
from .deletion import delete_group
from .offset_requests import commit, commit_in_transaction, delete_offsets, fetch


def handle_request(active: ActiveGroup, request: GroupRequest, reply: ReplyTo | None) -> object:
    """A request that the group handles by itself."""
    answer = active.group.handle(request, reply, active.effects)
    if isinstance(answer, GeneratorType):
        return _handle_in_steps(active, answer)
    active.apply_effects()
    return _answer_in_steps(active, answer) if active.effects.work else answer


def _handle_in_steps(active: ActiveGroup, steps: Steps[object]) -> Steps[object]:
    """Apply the effects after each step, because there may be many."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            active.apply_effects()
            return (yield from _answer_in_steps(active, end.value))
        active.apply_effects()
        yield


def _answer_in_steps(active: ActiveGroup, answer: object) -> Steps[object]:
    yield from active.work_in_steps()
    return answer


def create_or_handle(active: ActiveGroup, request: GroupRequest, reply: ReplyTo | None) -> object:
    """The same for a request that may create the group."""
    effects = active.effects
    answer = active.group.handle(request, reply, effects)
    if active.data.is_empty() and active.in_flight.is_all_appended and not effects.records:
        record = active.group.creation_record(request)
        if record is not None:
            effects.append_record(record, NewGroupContext())
    active.apply_effects()
    return _answer_in_steps(active, answer) if effects.work else answer


def describe_events(active: ActiveGroup, _request: DescribeEvents, _reply: ReplyTo | None) -> DescribedEvents:
    return DescribedEvents(ErrorCode.NONE, active.effects.kept_events)


Handler = Callable[[ActiveGroup, Any, ReplyTo | None], object]

HANDLERS: Mapping[str, Handler] = {
    function.__name__: function
    for function in (
        handle_request,
        create_or_handle,
        describe_events,
        commit,
        commit_in_transaction,
        fetch,
        delete_offsets,
        delete_group,
    )
}
"""By name. Each returns the reply, or ``DEFERRED`` if ``reply`` is set later."""
