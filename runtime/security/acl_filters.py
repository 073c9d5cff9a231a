"""Filters of access control lists, and what an ACL must be to be created. The rules are those of Kafka's
ResourcePatternFilter, AccessControlEntryFilter and AclControlManager. Pure.
"""

from __future__ import annotations

from typing import NamedTuple

from ..common.ip_addresses import java_form
from .acls import ANY_HOST, ANY_NAME, Acl, PatternType, Permission
from .resources import CLUSTER_NAME, Operation, ResourceType

CREATED_PATTERNS = (PatternType.LITERAL, PatternType.PREFIXED)


class AclFilter(NamedTuple):
    """Which ACLs are meant. ANY, and None as a name, principal or host, stand for all.

    ``pattern``: MATCH means the ACLs that match a resource of this name; the others compare the names themselves.
    """

    resource_type: ResourceType = ResourceType.ANY
    name: str | None = None
    pattern: PatternType = PatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: Operation = Operation.ANY
    permission: Permission = Permission.ANY

    @property
    def has_unknown(self) -> bool:
        """Whether a part of it is none that this version knows."""
        return 0 in (self.resource_type, self.pattern, self.operation, self.permission)

    def matches(self, acl: Acl) -> bool:
        return (
            self.resource_type in (ResourceType.ANY, acl.resource_type)
            and self._matches_pattern(acl)
            and self.principal in (None, acl.principal)
            and self.host in (None, acl.host)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission)
        )

    def _matches_pattern(self, acl: Acl) -> bool:
        name = self.name
        if self.pattern is not PatternType.MATCH:
            return self.pattern in (PatternType.ANY, acl.pattern) and name in (None, acl.name)
        if name is None:
            return True
        return name.startswith(acl.name) if acl.pattern is PatternType.PREFIXED else acl.name in (name, ANY_NAME)


def why_not_created(acl: Acl) -> str | None:
    """The reason why an ACL cannot be created, with Kafka's texts; None if it can be."""
    if 0 in (acl.resource_type, acl.pattern, acl.operation, acl.permission):
        return "You can not create ACL bindings with unknown elements"
    if acl.resource_type is ResourceType.CLUSTER and acl.name != CLUSTER_NAME:
        return f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    if not acl.name:
        return "Invalid empty resource name"
    if acl.resource_type is ResourceType.ANY:
        return "Invalid resourceType ANY"
    if acl.pattern not in CREATED_PATTERNS:
        return f"Invalid patternType {acl.pattern.name}"
    if acl.operation is Operation.ANY:
        return "Invalid operation ANY"
    if acl.permission is Permission.ANY:
        return "Invalid permissionType ANY"
    if ":" not in acl.principal:
        return (
            f"Could not parse principal from `{acl.principal}` (no colon is present separating the principal type from "
            "the principal name)"
        )
    return None


def why_no_match(acl: Acl) -> str | None:
    """The reason why an ACL matches no client, although it can be created, as in Kafka; None if it may match one."""
    if not acl.principal.startswith("User:"):
        return f"the principal '{acl.principal}': all clients have one of the type User, as in User:alice"
    return why_no_host(acl.host)


def why_no_host(host: str) -> str | None:
    """The reason why no client connects from the host of an ACL; None if one may."""
    try:
        expected = host if host == ANY_HOST else java_form(host)
    except ValueError:
        return f"the host '{host}': expected an IP address, as in 10.0.0.5, or *"
    return None if host == expected else f"the host '{host}': expected it as {expected}"
