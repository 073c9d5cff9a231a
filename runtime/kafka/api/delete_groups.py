"""DeleteGroups (key 42). Answered when the tombstones of all groups are durable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import DeleteGroup, OffsetFetch
from ....actors.steps import Steps, distinct, pieces
from ...common.shared_bytes import SharedBytes
from ...security.audit import Change
from ..audit.audited import record_in_steps
from ..audit.group_changes import group_offsets
from ..authorization.authorize import Verdicts, authorize_in_steps
from ..authorization.checks import DELETE_GROUP
from ..call import Body, Call
from ..codec.codes import NO_THROTTLE
from ..codec.step_writer import write_in_steps
from ..scatter_gather import ScatterGather


def handle(call: Call) -> Steps[None]:
    names = yield from distinct(call.request.groups_names)  # as in Kafka, each name is answered once
    verdicts = yield from authorize_in_steps(call, DELETE_GROUP, names)
    allowed = filter(verdicts.allows, names)
    if call.services.audit.is_on:
        asked = (message for name in allowed for message in (OffsetFetch(name, None), DeleteGroup(name)))
        ScatterGather(call, asked, lambda replies: _record(call, names, verdicts, replies)).send_next_batch()
        return
    messages = map(DeleteGroup, allowed)
    ScatterGather(call, messages, lambda replies: _encode(call, names, verdicts, replies)).send_next_batch()


def _record(call: Call, names: Iterable[str], verdicts: Verdicts, replies: Sequence[Any]) -> Body:
    """Record what was deleted, then answer. ``replies``: for each allowed group its offsets, and the error."""
    return _record_and_encode(call, names, verdicts, replies[::2], list(replies[1::2]))


def _record_and_encode(
    call: Call,
    names: Iterable[str],
    verdicts: Verdicts,
    offsets: Sequence[Any],
    errors: list[ErrorCode],
) -> Steps[bytes | SharedBytes]:
    changes = (
        None if error else Change("delete", f"Group:{name}", group_offsets(fetched))
        for name, fetched, error in zip(filter(verdicts.allows, names), offsets, errors, strict=True)
    )
    yield from record_in_steps(call, changes)
    body = _encode(call, names, verdicts, errors)
    return body if isinstance(body, bytes) else (yield from body)


def _encode(call: Call, names: Iterable[str], verdicts: Verdicts, errors: list[ErrorCode]) -> Body:
    """Encode the results. As in Kafka, those of denied groups follow the others."""
    results = _results(call, names, verdicts, errors)
    return write_in_steps(call.make("DeleteGroupsResponse", throttle_time=NO_THROTTLE, results=results))


def _results(call: Call, names: Iterable[str], verdicts: Verdicts, errors: list[ErrorCode]) -> Iterator[Any]:
    """The results, for ``step_writer``."""
    for name, error in zip((name for name in names if verdicts.allows(name)), errors, strict=True):
        yield call.make("DeletableGroupResult", group_id=name, error_code=error)
    for piece in pieces(names):
        for name in piece:
            if not verdicts.allows(name):
                yield call.make("DeletableGroupResult", group_id=name, error_code=verdicts.code)
        yield None
