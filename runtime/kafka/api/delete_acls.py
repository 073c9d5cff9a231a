"""DeleteAcls (key 31): deletes the ACLs that match filters. Answered when this is durable."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any, Final

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, distinct, pieces
from ...common.shared_bytes import SharedBytes
from ...security.acl_filters import AclFilter
from ...security.acls import Acl
from ..audit.audited import record_in_steps
from ..authorization.acl_entities import DELETED, UNKNOWN_FILTER, audited, error_fields, filter_of, refusal
from ..authorization.checks import ALTER_SECURITY
from ..call import Call
from ..codec.codes import NO_THROTTLE
from ..codec.step_writer import write_in_steps
from .create_acls import NO_AUTHORIZER

MATCHES_MAX: Final = 10_000
"""ACLs that the filters of a request match: an ACL counts once for each filter, since so often it is in the answer.

In Kafka it counts once (``MAX_RECORDS_PER_USER_OP`` of ``AclControlManager``).
"""

TOO_MANY: Final = f"Cannot remove more than {MATCHES_MAX} acls in a single delete operation."

Matches = Sequence[Sequence[Acl] | CoordinatorError]
"""For each filter the ACLs that it matches, or why it is refused."""


def handle(call: Call) -> Steps[None]:
    error = refusal(call, ALTER_SECURITY, NO_AUTHORIZER)
    filters, acls = call.request.filters, call.services.acls
    if error is not None or acls is None:
        matches: Matches = [error or ()] * len(filters)
        call.encode_and_respond(lambda: encode(call, matches, (), None))
        return
    found = yield from _matches(filters, tuple(acls.table.acls))
    wanted = yield from distinct(chain.from_iterable(each for each in found if not isinstance(each, CoordinatorError)))

    def done(failure: Exception | None, deleted: Collection[Acl]) -> None:
        call.encode_and_respond(lambda: encode(call, found, deleted, failure))

    if wanted:
        acls.delete(wanted, done)
    else:
        done(None, ())


def _matches(filters: Sequence[Any], present: Sequence[Acl]) -> Steps[Matches]:
    matches: list[Sequence[Acl] | CoordinatorError] = []
    count = 0
    for entity in filters:
        matching = yield from _matching(filter_of(entity), present)
        count += 0 if isinstance(matching, CoordinatorError) else len(matching)
        if count > MATCHES_MAX:
            return [CoordinatorError(ErrorCode.INVALID_REQUEST, TOO_MANY)] * len(filters)
        matches.append(matching)
    return matches


def _matching(wanted: AclFilter, present: Sequence[Acl]) -> Steps[Sequence[Acl] | CoordinatorError]:
    if wanted.has_unknown:
        return CoordinatorError(ErrorCode.INVALID_REQUEST, UNKNOWN_FILTER)
    matching: list[Acl] = []
    for piece in pieces(present):
        matching += filter(wanted.matches, piece)
        yield
    return matching


def encode(
    call: Call, matches: Matches, deleted: Iterable[Acl], failure: Exception | None
) -> Steps[bytes | SharedBytes]:
    """``deleted``: the ACLs that this request has removed, each once. ``failure``: why nothing was deleted."""
    if failure is None:
        yield from record_in_steps(call, (audited(DELETED, acl) for acl in deleted))
    response = call.make(
        "DeleteAclsResponse", throttle_time=NO_THROTTLE, filter_results=_results(call, matches, failure)
    )
    return (yield from write_in_steps(response))


def _results(call: Call, matches: Matches, failure: Exception | None) -> Iterator[Any]:
    for matching in matches:
        error = matching if isinstance(matching, CoordinatorError) else failure
        acls: Sequence[Acl] = () if isinstance(matching, CoordinatorError) or failure else matching
        yield call.make(
            "DeleteAclsFilterResult",
            **error_fields(error),
            matching_acls=(call.make("DeleteAclsMatchingAcl", **_fields(acl)) for acl in acls),
        )


def _fields(acl: Acl) -> Mapping[str, Any]:
    return {
        **error_fields(None),
        "resource_type": int(acl.resource_type),
        "resource_name": acl.name,
        "pattern_type": int(acl.pattern),
        "principal": acl.principal,
        "host": acl.host,
        "operation": int(acl.operation),
        "permission_type": int(acl.permission),
    }
