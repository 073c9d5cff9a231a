"""``callboard acls``: access control lists on any server of Kafka's protocol."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from typing import Annotated, NamedTuple

import typer

from ...actors.text import did_you_mean, format_count
from ..client.acls import create_acls, delete_acls, list_acls
from ..common.errors import StartError
from ..common.ip_addresses import java_form
from ..common.printing import print_line
from ..security.acl_filters import AclFilter, why_no_host, why_not_created
from ..security.acls import ANY_HOST, Acl, PatternType, Permission
from ..security.resources import CLUSTER_NAME, Operation, ResourceType
from .main import make_app
from .server_options import DEFAULT_SERVER, AsJson, Bootstrap, TimeoutS, connect, run_app
from .tables import Column, Table, show_rows

COLUMNS = (
    Column("resource", "resource"),
    Column("name", "name"),
    Column("pattern", "pattern"),
    Column("principal", "principal"),
    Column("permission", "permission"),
    Column("operation", "operation"),
    Column("host", "host"),
)
OPERATIONS = {operation.name.lower(): operation for operation in Operation if operation >= Operation.ALL}

Topics = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="This topic, or * for all; may be repeated.")
]
GroupNames = Annotated[
    list[str] | None, typer.Option("--group", metavar="GROUP", help="This group, or * for all; may be repeated.")
]
TransactionalIds = Annotated[
    list[str] | None,
    typer.Option("--transactional-id", metavar="ID", help="This transactional id, or * for all; may be repeated."),
]
OnCluster = Annotated[bool, typer.Option("--on-cluster", help="The cluster itself.")]
Prefixed = Annotated[bool, typer.Option("--prefixed", help="The names are prefixes: all names that begin with them.")]
Operations = Annotated[
    list[str] | None,
    typer.Option("--operation", metavar="OPERATION", help="Only ACLs of this operation; may be repeated."),
]
OfPrincipal = Annotated[
    str | None, typer.Option("--principal", metavar="TYPE:NAME", help="Only ACLs of this principal.")
]

app = make_app("List, add and remove access control lists, on any server that speaks Kafka's protocol.")


class Resource(NamedTuple):
    """Resources of a type. ``name``: the name, or the prefix of the names."""

    resource_type: ResourceType
    name: str


@app.command("list")
def list_(
    principal: OfPrincipal = None,
    topic: Topics = None,
    group: GroupNames = None,
    transactional_id: TransactionalIds = None,
    on_cluster: OnCluster = False,
    operation: Operations = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """List the ACLs, those that match a resource if one is given."""
    resources = resources_of(topic, group, transactional_id, on_cluster)
    filters = filters_of(resources, principal, operation, PatternType.MATCH)
    with connect(bootstrap_server, timeout) as cluster:
        acls = sorted({acl for each in filters for acl in list_acls(cluster, each)})
    show_rows(table_of(acls), f"no such ACLs on {bootstrap_server}", as_json=as_json)
    unmatched = list(filter(None, (why_no_host(acl.host) for acl in acls)))
    if unmatched and not as_json:
        reasons = "; ".join(dict.fromkeys(unmatched))
        print_line(f"no client matches {format_count(len(unmatched), 'ACL')} of these: {reasons}")


@app.command("add")
def add(
    principal: Annotated[str, typer.Argument(metavar="PRINCIPAL", help="As in User:alice, or User:* for all.")],
    operation: Annotated[
        list[str], typer.Argument(metavar="OPERATION...", help="As in read or describe; all is every operation.")
    ],
    topic: Topics = None,
    group: GroupNames = None,
    transactional_id: TransactionalIds = None,
    on_cluster: OnCluster = False,
    prefixed: Prefixed = False,
    deny: Annotated[bool, typer.Option("--deny", help="Forbid it, whatever other ACLs allow.")] = False,
    host: Annotated[
        list[str] | None, typer.Option(metavar="ADDRESS", help="From this address only; may be repeated.")
    ] = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    timeout: TimeoutS = 10.0,
) -> None:
    """Allow or deny a principal operations on resources."""
    resources = resources_of(topic, group, transactional_id, on_cluster)
    if not resources:
        raise StartError("expected a resource: --topic, --group, --transactional-id or --on-cluster")
    permission = Permission.DENY if deny else Permission.ALLOW
    acls = [
        Acl(resource_type, name, pattern_of(resource_type, prefixed), principal, address, each, permission)
        for (resource_type, name), each, address in product(
            resources, map(parse_operation, operation), map(parse_host, host or (ANY_HOST,))
        )
    ]
    for acl in acls:
        if reason := why_not_created(acl):
            raise StartError(f"{reason}; expected a principal as in User:alice, and names that are not empty")
    with connect(bootstrap_server, timeout) as cluster:
        create_acls(cluster, acls)
    print_line(f"{format_count(len(acls), 'ACL')} of {principal} added")


@app.command("remove")
def remove(
    principal: OfPrincipal = None,
    topic: Topics = None,
    group: GroupNames = None,
    transactional_id: TransactionalIds = None,
    on_cluster: OnCluster = False,
    prefixed: Prefixed = False,
    operation: Operations = None,
    bootstrap_server: Bootstrap = DEFAULT_SERVER,
    as_json: AsJson = False,
    timeout: TimeoutS = 10.0,
) -> None:
    """Remove ACLs, and show them. Names are compared exactly; ACLs of prefixes need --prefixed."""
    resources = resources_of(topic, group, transactional_id, on_cluster)
    if not (resources or principal or operation):
        raise StartError("expected a principal, an operation or a resource: without any, all ACLs would be removed")
    pattern = PatternType.ANY if not resources else PatternType.PREFIXED if prefixed else PatternType.LITERAL
    with connect(bootstrap_server, timeout) as cluster:
        removed = delete_acls(cluster, filters_of(resources, principal, operation, pattern))
    show_rows(table_of(removed), f"no such ACLs on {bootstrap_server}", as_json=as_json)
    if removed and not as_json:
        print_line(f"{format_count(len(removed), 'ACL')} removed")


def resources_of(
    topics: Iterable[str] | None,
    groups: Iterable[str] | None,
    transactional_ids: Iterable[str] | None,
    is_cluster: bool,
) -> list[Resource]:
    """The resources that options name."""
    return [
        *(Resource(ResourceType.TOPIC, name) for name in topics or ()),
        *(Resource(ResourceType.GROUP, name) for name in groups or ()),
        *(Resource(ResourceType.TRANSACTIONAL_ID, name) for name in transactional_ids or ()),
        *([Resource(ResourceType.CLUSTER, CLUSTER_NAME)] if is_cluster else ()),
    ]


def filters_of(
    resources: Sequence[Resource], principal: str | None, operations: Iterable[str] | None, pattern: PatternType
) -> list[AclFilter]:
    """A filter for each pair of a resource and an operation; without one of them for all."""
    wanted = [parse_operation(text) for text in operations or ()] or [Operation.ANY]
    targets: Sequence[tuple[ResourceType, str | None]] = resources or [(ResourceType.ANY, None)]
    return [
        AclFilter(resource_type, name, pattern_in_filter(resource_type, pattern), principal, None, operation)
        for resource_type, name in targets
        for operation in wanted
    ]


def pattern_of(resource_type: ResourceType, is_prefix: bool) -> PatternType:
    """The cluster has one name only, which is never a prefix."""
    return PatternType.PREFIXED if is_prefix and resource_type is not ResourceType.CLUSTER else PatternType.LITERAL


def pattern_in_filter(resource_type: ResourceType, pattern: PatternType) -> PatternType:
    return PatternType.LITERAL if resource_type is ResourceType.CLUSTER else pattern


def parse_operation(text: str) -> Operation:
    """An operation by its name, in any case. Raises StartError."""
    name = text.strip().lower().replace("-", "_")
    if name not in OPERATIONS:
        raise StartError(
            f"unknown operation '{text}':{did_you_mean(name, OPERATIONS)} known are {', '.join(OPERATIONS)}"
        )
    return OPERATIONS[name]


def parse_host(text: str) -> str:
    """An address in the form in which servers compare it, or "*". Raises StartError for what would never match."""
    if text == ANY_HOST:
        return text
    try:
        return java_form(text)
    except ValueError:
        raise StartError(
            f"bad --host '{text}': expected an IP address, as in 10.0.0.5, or {ANY_HOST}; ACLs have no names of hosts"
            " and no networks"
        ) from None


def table_of(acls: Iterable[Acl]) -> Table:
    rows = [
        (
            acl.resource_type.name.lower(),
            acl.name,
            acl.pattern.name.lower(),
            acl.principal,
            acl.permission.name.lower(),
            acl.operation.name.lower(),
            acl.host,
        )
        for acl in acls
    ]
    return Table(COLUMNS, rows)


def main(argv: Sequence[str]) -> int:
    return run_app(app, argv, "callboard acls")
