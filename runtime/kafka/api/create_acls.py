"""CreateAcls (key 30). Invalid ACLs are refused and the others created. Answered when they are durable.

Those that match no client are created as well, as in Kafka. The log has a warning.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, pieces
from ...common.logs import get_logger
from ...common.shared_bytes import SharedBytes
from ...security.acl_filters import why_no_match, why_not_created
from ...security.acls import Acl
from ..audit.audited import record_in_steps
from ..authorization.acl_entities import CREATED, acl_of_creation, audited, error_fields, refusal
from ..authorization.checks import ALTER_SECURITY
from ..call import Call
from ..codec.codes import NO_THROTTLE
from ..codec.step_writer import write_in_steps
from .incremental_alter_configs import author

NO_AUTHORIZER = "No Authorizer is configured."
CHECKED_AT_ONCE = 32
"""ACLs. To parse the address of a host takes some microseconds."""

log = get_logger("callboard.runtime")


class Checked(NamedTuple):
    """``refusals``: for each entry of the request. ``unmatched``: why ACLs of ``wanted`` match no client."""

    wanted: Sequence[Acl]
    refusals: Sequence[CoordinatorError | None]
    unmatched: Sequence[str]


def handle(call: Call) -> Steps[None]:
    error = refusal(call, ALTER_SECURITY, NO_AUTHORIZER)
    creations = call.request.creations
    acls = call.services.acls
    if error is not None or acls is None:
        call.encode_and_respond(lambda: encode(call, [error] * len(creations), ()))
        return
    wanted, refusals, unmatched = yield from _check(creations)

    def done(failure: Exception | None, created: Collection[Acl]) -> None:
        errors = [refused or failure for refused in refusals]
        if unmatched and created:
            log.warning("ACLs that match no client", count=len(unmatched), reason=unmatched[0], changed_by=author(call))
        call.encode_and_respond(lambda: encode(call, errors, () if failure else created))

    if wanted:
        acls.create(wanted, done)
    else:
        done(None, ())


def _check(creations: Sequence[Any]) -> Steps[Checked]:
    wanted: list[Acl] = []
    refusals: list[CoordinatorError | None] = []
    unmatched: list[str] = []
    for piece in pieces(creations, CHECKED_AT_ONCE):
        for acl in map(acl_of_creation, piece):
            refused, reason = why_not_created(acl), why_no_match(acl)
            refusals.append(None if refused is None else CoordinatorError(ErrorCode.INVALID_REQUEST, refused))
            if refused is None:
                wanted.append(acl)
                unmatched += [] if reason is None else [reason]
        yield
    return Checked(wanted, refusals, unmatched)


def encode(call: Call, errors: Sequence[Exception | None], created: Iterable[Acl]) -> Steps[bytes | SharedBytes]:
    """``errors``: one for each entry of the request, in their order. ``created``: ACLs that were not there before."""
    yield from record_in_steps(call, (audited(CREATED, acl) for acl in created))
    response = call.make("CreateAclsResponse", throttle_time=NO_THROTTLE, results=_results(call, errors))
    return (yield from write_in_steps(response))


def _results(call: Call, errors: Sequence[Exception | None]) -> Iterator[Any]:
    for error in errors:
        yield call.make("AclCreationResult", **error_fields(error, no_message=""))
