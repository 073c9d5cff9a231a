"""Access control lists of a running server, for commands."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from ..security.acl_filters import AclFilter
from ..security.acls import Acl, PatternType, Permission
from ..security.resources import Operation, ResourceType
from .cluster import Cluster
from .errors import raise_if_error


def list_acls(cluster: Cluster, wanted: AclFilter) -> list[Acl]:
    """The ACLs that match a filter, sorted by resource. Raises what ``Cluster`` raises."""
    response = cluster.ask("describe_acls", **_filter_fields(wanted))
    raise_if_error("the ACLs cannot be listed", response.error_code, response.error_message)
    return sorted(_acl_of(resource, acl) for resource in response.resources for acl in resource.acls)


def create_acls(cluster: Cluster, acls: Sequence[Acl]) -> None:
    """Create ACLs. Raises RefusedError for the first that is refused; the valid ones are created."""
    creations = [
        {
            "resource_type": int(acl.resource_type),
            "resource_name": acl.name,
            "resource_pattern_type": int(acl.pattern),
            "principal": acl.principal,
            "host": acl.host,
            "operation": int(acl.operation),
            "permission_type": int(acl.permission),
        }
        for acl in acls
    ]
    for acl, result in zip(acls, cluster.ask("create_acls", creations=creations).results, strict=True):
        raise_if_error(f"the ACL of {acl.principal} was not created", result.error_code, result.error_message)


def delete_acls(cluster: Cluster, filters: Iterable[AclFilter]) -> list[Acl]:
    """Delete the ACLs that match any of the filters. Returns them, each once, sorted by resource."""
    deleted: set[Acl] = set()
    for result in cluster.ask("delete_acls", filters=list(map(_filter_fields, filters))).filter_results:
        raise_if_error("the ACLs were not removed", result.error_code, result.error_message)
        for acl in result.matching_acls:
            raise_if_error("an ACL was not removed", acl.error_code, acl.error_message)
            deleted.add(_acl_of(acl, acl))
    return sorted(deleted)


def _acl_of(resource: Any, acl: Any) -> Acl:
    """An ACL of a response. ``resource``: the entity with the fields of its resource; ``acl`` itself may have them."""
    return Acl(
        ResourceType(resource.resource_type),
        resource.resource_name,
        PatternType(resource.pattern_type),
        acl.principal,
        acl.host,
        Operation(acl.operation),
        Permission(acl.permission_type),
    )


def _filter_fields(wanted: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": int(wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.pattern),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }
