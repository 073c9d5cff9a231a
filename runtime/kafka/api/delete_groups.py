"""DeleteGroups (key 42). Answered when the tombstones of all groups are durable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.messages import DeleteGroup
from ....actors.steps import Steps, distinct, pieces
from ..authorize import Verdicts, authorize_in_steps
from ..call import Body, Call
from ..checks import DELETE_GROUP
from ..codec.codes import NO_THROTTLE
from ..codec.step_writer import write_in_steps
from ..scatter_gather import ScatterGather


def handle(call: Call) -> Steps[None]:
    names = yield from distinct(call.request.groups_names)  # as in Kafka, each name is answered once
    verdicts = yield from authorize_in_steps(call, DELETE_GROUP, names)
    messages = (DeleteGroup(name) for name in names if verdicts.allows(name))
    ScatterGather(call, messages, lambda replies: _encode(call, names, verdicts, replies)).send_next_batch()


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
