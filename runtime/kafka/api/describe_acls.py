"""DescribeAcls (key 29): the ACLs that match a filter, by the pattern of their resource."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps, pieces
from ...security.acls import Acl, PatternType
from ...security.resources import ResourceType
from ..authorization.acl_entities import UNKNOWN_FILTER, error_fields, filter_of, refusal
from ..authorization.checks import DESCRIBE_SECURITY
from ..call import Call
from ..codec.codes import NO_THROTTLE

NO_AUTHORIZER = "No Authorizer is configured on the broker"

Found = Mapping[tuple[ResourceType, str, PatternType], Sequence[Acl]]


def handle(call: Call) -> Steps[None]:
    error = refusal(call, DESCRIBE_SECURITY, NO_AUTHORIZER)
    if error is None and filter_of(call.request).has_unknown:
        error = CoordinatorError(ErrorCode.INVALID_REQUEST, UNKNOWN_FILTER)
    found = {} if error else (yield from _find(call))
    response = call.make(
        "DescribeAclsResponse",
        throttle_time=NO_THROTTLE,
        **error_fields(error, no_message=""),
        resources=_resources(call, found),
    )
    yield from call.respond_in_steps(response)


def _find(call: Call) -> Steps[Found]:
    acls, wanted = call.services.acls, filter_of(call.request)
    assert acls is not None, "checked by the caller"
    found: dict[tuple[ResourceType, str, PatternType], list[Acl]] = {}
    for piece in pieces(tuple(acls.table.acls)):
        for acl in filter(wanted.matches, piece):
            found.setdefault((acl.resource_type, acl.name, acl.pattern), []).append(acl)
        yield
    return found


def _resources(call: Call, found: Found) -> Iterator[Any]:
    for (resource_type, name, pattern), acls in found.items():
        yield call.make(
            "DescribeAclsResource",
            resource_type=int(resource_type),
            resource_name=name,
            pattern_type=int(pattern),
            acls=(_description(call, acl) for acl in acls),
        )


def _description(call: Call, acl: Acl) -> Any:
    return call.make(
        "AclDescription",
        principal=acl.principal,
        host=acl.host,
        operation=int(acl.operation),
        permission_type=int(acl.permission),
    )
