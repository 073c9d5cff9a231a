"""What the APIs of ACLs have in common: ACLs and filters from kio's entities, refusals, and errors in responses."""

from __future__ import annotations

from enum import IntEnum
from typing import Any, TypeVar

from ....actors.errors import CoordinatorError, ErrorCode
from ...security.acl_filters import AclFilter
from ...security.acls import Acl, PatternType, Permission
from ...security.audit import Change
from ...security.resources import Operation, ResourceType
from ..audit.audited import resource_text
from ..call import Call
from ..codec.codes import kafka_error
from ..refusals import as_refusal
from .authorize import authorize
from .checks import Check

Member = TypeVar("Member", bound=IntEnum)

CREATED, DELETED = "create acl", "delete acl"
"""The operations in the audit trail."""

UNKNOWN_FILTER = "The AclBindingFilter must not contain UNKNOWN elements."


def acl_of_creation(creation: Any) -> Acl:
    """The ACL of an entry of CreateAcls. Its parts may be unknown."""
    return Acl(
        _member(ResourceType, creation.resource_type),
        creation.resource_name,
        _member(PatternType, creation.resource_pattern_type),
        creation.principal,
        creation.host,
        _member(Operation, creation.operation),
        _member(Permission, creation.permission_type),
    )


def filter_of(entity: Any) -> AclFilter:
    """The filter of DescribeAcls, or of an entry of DeleteAcls. Its parts may be unknown."""
    return AclFilter(
        _member(ResourceType, entity.resource_type_filter),
        entity.resource_name_filter,
        _member(PatternType, entity.pattern_type_filter),
        entity.principal_filter,
        entity.host_filter,
        _member(Operation, entity.operation),
        _member(Permission, entity.permission_type),
    )


def _member(enum: type[Member], number: int) -> Member:
    """UNKNOWN for a number that the enumeration does not have."""
    try:
        return enum(number)
    except ValueError:
        return enum(0)


def audited(operation: str, acl: Acl) -> Change:
    """The creation or deletion of an ACL, for the audit trail."""
    fields = {
        "pattern": acl.pattern.name,
        "principal": acl.principal,
        "host": acl.host,
        "operation": acl.operation.name,
        "permission": acl.permission.name,
    }
    values = (None, fields) if operation == CREATED else (fields, None)
    return Change(operation, resource_text(acl.resource_type, acl.name), *values)


def refusal(call: Call, check: Check, no_authorizer: str) -> CoordinatorError | None:
    """Why the whole request is refused: the client may not send it, or there are no ACLs, with this text."""
    if authorize(call, check).error:
        return CoordinatorError(check.denial.code, check.denial.message)
    return CoordinatorError(ErrorCode.SECURITY_DISABLED, no_authorizer) if call.services.acls is None else None


def error_fields(error: Exception | None, no_message: str | None = None) -> dict[str, Any]:
    """The fields of an error in a response: of a CoordinatorError, of an OSError when ACLs were written, or of none.

    ``no_message``: the text without an error, which is not the same in all responses.
    """
    if error is None:
        return {"error_code": kafka_error(ErrorCode.NONE), "error_message": no_message}
    refused = as_refusal(error, "ACLs")
    return {"error_code": kafka_error(refused.code), "error_message": str(refused)}
