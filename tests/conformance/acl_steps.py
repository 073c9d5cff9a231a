"""Functions for the steps of scenarios about access control lists.

All clients of scripts are User:ANONYMOUS, who may do everything with a resource that no ACL matches. So the scripts
create ACLs themselves.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .script import Step
from .steps import wait

ANY, LITERAL, PREFIXED = 1, 3, 4
TOPIC, GROUP, CLUSTER, TRANSACTIONAL_ID = 2, 3, 4, 5
DENY, ALLOW = 2, 3
ALL, READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE = 2, 3, 4, 5, 6, 7, 8
DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE = 10, 11, 12
BROKER_CONFIG, GROUP_CONFIG = 4, 32

EVERYBODY = "User:*"
ANONYMOUS = "User:ANONYMOUS"
APPLIED_MS = 400  # Kafka answers before its broker has the new ACLs


def acl(resource_type: int, name: str, operation: int, permission: int = DENY, **changes: Any) -> dict[str, Any]:
    return {
        "resource_type": resource_type,
        "resource_name": name,
        "resource_pattern_type": LITERAL,
        "principal": ANONYMOUS,
        "host": "*",
        "operation": operation,
        "permission_type": permission,
        **changes,
    }


def create(*acls: Mapping[str, Any], v: int = 3) -> list[Step]:
    """ACLs are created, and in effect."""
    return [["Z", "create_acls", v, {"creations": list(acls)}], wait(APPLIED_MS)]


def deny(resource_type: int, name: str, *operations: int, **changes: Any) -> list[Step]:
    return create(*(acl(resource_type, name, operation, **changes) for operation in operations))


def filter_of(**changes: Any) -> dict[str, Any]:
    return {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
        **changes,
    }


def show(v: int = 3, **changes: Any) -> Step:
    return ["Z", "describe_acls", v, filter_of(**changes)]


def remove(*filters: Mapping[str, Any], v: int = 3) -> list[Step]:
    return [["Z", "delete_acls", v, {"filters": list(filters)}], wait(APPLIED_MS)]
