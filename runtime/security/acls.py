"""Access control lists: which of them match a request, and what follows. The rules are those of Kafka's
StandardAuthorizer (KIP-801), with prefixes (KIP-290). Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple

from ...actors.steps import ITEMS_PER_STEP, Steps, distinct, pieces, run_steps
from .resources import Operation, ResourceType

CHANGED_AT_ONCE_MAX: Final = 200
"""Changes of the indexes in one step. Each takes some microseconds."""

ANY_NAME: Final = "*"
"""The literal name of an ACL for all resources of a type."""
ANY_PRINCIPAL: Final = "User:*"
ANY_HOST: Final = "*"


class PatternType(IntEnum):
    """How the name of an ACL is compared with that of a resource. The numbers are those of Kafka's PatternType.

    ANY and MATCH occur in filters only.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """What an ACL does. The numbers are those of Kafka's AclPermissionType. ANY occurs in filters only."""

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3


class Acl(NamedTuple):
    """One access control list: Kafka's AclBinding.

    ``principal``: "User:alice", or "User:*" for all. ``host``: an address in Java's form, or "*" for all.
    """

    resource_type: ResourceType
    name: str
    pattern: PatternType
    principal: str
    host: str
    operation: Operation
    permission: Permission


class Rule(Enum):
    """The reason of a decision that no ACL has made, as in Kafka's log."""

    SUPER_USER = "SuperUser"
    DEFAULT_ALLOW = "DefaultAllow"
    DEFAULT_DENY = "DefaultDeny"


class Decision(NamedTuple):
    """Whether an operation is allowed, and the rule or the ACL that decides it."""

    is_allowed: bool
    rule: Rule | Acl


class Requester(NamedTuple):
    """Who asks. ``principal``: "User:alice". ``host``: the address of the client, in Java's form."""

    principal: str
    host: str


SUPER_USER: Final = Decision(True, Rule.SUPER_USER)
DEFAULT_ALLOW: Final = Decision(True, Rule.DEFAULT_ALLOW)
DEFAULT_DENY: Final = Decision(False, Rule.DEFAULT_DENY)

IMPLYING: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS}),
}
"""The operations whose permission includes that of another one. A prohibition includes no other one."""


def concerns(acl: Acl, requester: Requester, operation: Operation) -> bool:
    """Whether an ACL that matches a resource, and the principal of a request, decides about an operation."""
    if acl.host not in (ANY_HOST, requester.host):
        return False
    if acl.operation in (Operation.ALL, operation):
        return True
    return acl.permission is Permission.ALLOW and acl.operation in IMPLYING.get(operation, ())


class AclIndex:
    """ACLs of one type of resource by names and prefixes: those of a name are found without reading the others."""

    __slots__ = ("_literal", "_prefix_lengths", "_prefixed")

    def __init__(self) -> None:
        self._literal: dict[str, dict[Acl, None]] = {}
        self._prefixed: dict[str, dict[Acl, None]] = {}
        self._prefix_lengths: Counter[int] = Counter()

    def __iter__(self) -> Iterator[Acl]:
        for acls in (*self._literal.values(), *self._prefixed.values()):
            yield from acls

    def __bool__(self) -> bool:
        return bool(self._literal or self._prefixed)

    def add(self, acl: Acl) -> None:
        by_name = self._by_name(acl)
        if acl.name not in by_name:
            by_name[acl.name] = {}
            if by_name is self._prefixed:
                self._prefix_lengths[len(acl.name)] += 1
        by_name[acl.name][acl] = None

    def remove(self, acl: Acl) -> None:
        """Remove an ACL that is there."""
        by_name = self._by_name(acl)
        del by_name[acl.name][acl]
        if not by_name[acl.name]:
            del by_name[acl.name]
            if by_name is self._prefixed:
                self._prefix_lengths -= Counter((len(acl.name),))  # drops a length that no prefix has

    def clear(self) -> Steps[None]:
        """Free everything."""
        for by_name in (self._literal, self._prefixed):
            yield from _emptied(by_name)

    def _by_name(self, acl: Acl) -> dict[str, dict[Acl, None]]:
        return self._prefixed if acl.pattern is PatternType.PREFIXED else self._literal

    def matching(self, name: str) -> Iterator[Acl]:
        """The ACLs that match the name of a resource."""
        yield from self._literal.get(name, ())
        if name != ANY_NAME:
            yield from self._literal.get(ANY_NAME, ())
        for length in self._prefix_lengths:
            if length <= len(name):
                yield from self._prefixed.get(name[:length], ())

    def matches(self, name: str) -> bool:
        """Whether any ACL matches the name of a resource."""
        return next(self.matching(name), None) is not None


EMPTY: Final = AclIndex()
"""Nothing is added to it."""


class AclIndexes:
    """ACLs by the type of their resource, and by type and principal."""

    def __init__(self) -> None:
        self._by_type: dict[ResourceType, AclIndex] = {}
        self._by_principal: dict[tuple[ResourceType, str], AclIndex] = {}

    def add(self, acl: Acl) -> None:
        self._by_type.setdefault(acl.resource_type, AclIndex()).add(acl)
        self._by_principal.setdefault((acl.resource_type, acl.principal), AclIndex()).add(acl)

    def remove(self, acl: Acl) -> None:
        """Remove an ACL that is there."""
        self._by_type[acl.resource_type].remove(acl)
        key = acl.resource_type, acl.principal
        self._by_principal[key].remove(acl)
        if not self._by_principal[key]:
            del self._by_principal[key]

    def change(self, removed: Iterable[Acl], added: Iterable[Acl]) -> None:
        for acl in removed:
            self.remove(acl)
        for acl in added:
            self.add(acl)

    def clear(self) -> Steps[None]:
        """Free everything, in steps: this takes a third of a microsecond for each ACL."""
        for indexes in (self._by_principal, self._by_type):
            while indexes:
                _, index = indexes.popitem()
                yield from index.clear()

    def of_type(self, resource_type: ResourceType) -> AclIndex:
        return self._by_type.get(resource_type, EMPTY)

    def of_principal(self, resource_type: ResourceType, principal: str) -> AclIndex:
        return self._by_principal.get((resource_type, principal), EMPTY)


class AclTable:
    """All ACLs, and the decisions that follow from them. ``version``: a number that changes with them."""

    def __init__(self, acls: Iterable[Acl] = ()) -> None:
        self.acls: dict[Acl, None] = {}
        self.version = 0
        self._indexes = AclIndexes()
        run_steps(self.replace(acls))

    def replace(self, acls: Iterable[Acl]) -> Steps[None]:
        """Have these ACLs from now on, in this order. All of them take effect in the same step.

        Few changes are made in the indexes that there are; many are made in new indexes, which replace the others.
        """
        before, after = self.acls, (yield from distinct(acls))
        added = yield from _without(after, before)
        removed = yield from _without(before, after)
        replaced = AclIndexes()
        if len(added) + len(removed) <= CHANGED_AT_ONCE_MAX:
            self._indexes.change(removed, added)
        else:
            indexes = yield from _indexes_of(after)
            replaced, self._indexes = self._indexes, indexes
        self.acls = after
        self.version += 1
        yield from replaced.clear()
        yield from _emptied(before)

    def decide(
        self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str
    ) -> Decision | None:
        """Decide about an operation on a resource; None if no ACL of anybody matches the resource.

        A prohibition that matches outweighs all permissions. Without a permission the operation is denied.
        """
        allowed_by: Acl | None = None
        for index in self._of_requester(requester, resource_type):
            for acl in index.matching(name):
                if concerns(acl, requester, operation):
                    if acl.permission is Permission.DENY:
                        return Decision(False, acl)
                    allowed_by = acl
        if allowed_by is not None:
            return Decision(True, allowed_by)
        return DEFAULT_DENY if self._indexes.of_type(resource_type).matches(name) else None

    def decide_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether an operation is allowed on some name that an ACL has (Authorizer.authorizeByResourceType).

        Only ACLs of the very operation, or of all, count. A name is not allowed if it is denied itself, or has a denied
        prefix.
        """
        own = [
            acl
            for index in self._of_requester(requester, resource_type)
            for acl in index
            if acl.host in (ANY_HOST, requester.host) and acl.operation in (Operation.ALL, operation)
        ]
        denied = {(acl.pattern, acl.name) for acl in own if acl.permission is Permission.DENY}
        if (PatternType.LITERAL, ANY_NAME) in denied:
            return False
        return any(_is_permitted(acl, denied) for acl in own if acl.permission is Permission.ALLOW)

    def _of_requester(self, requester: Requester, resource_type: ResourceType) -> tuple[AclIndex, AclIndex]:
        of_principal = self._indexes.of_principal
        return of_principal(resource_type, requester.principal), of_principal(resource_type, ANY_PRINCIPAL)


def _indexes_of(acls: Iterable[Acl]) -> Steps[AclIndexes]:
    indexes = AclIndexes()
    for piece in pieces(acls):
        for acl in piece:
            indexes.add(acl)
        yield
    return indexes


def _emptied(replaced: dict[Any, Any]) -> Steps[None]:
    """Free what is not used any more."""
    while replaced:
        for _ in range(min(len(replaced), ITEMS_PER_STEP)):
            replaced.popitem()
        yield


def _without(acls: Iterable[Acl], others: Collection[Acl]) -> Steps[list[Acl]]:
    """The ACLs that are not among the others."""
    found: list[Acl] = []
    for piece in pieces(acls):
        found += (acl for acl in piece if acl not in others)
        yield
    return found


def _is_permitted(acl: Acl, denied: Collection[tuple[PatternType, str]]) -> bool:
    """Whether no prohibition covers the names of a permission."""
    pattern, name = acl.pattern, acl.name
    if pattern is PatternType.LITERAL:
        if name == ANY_NAME:
            return True
        if (pattern, name) in denied:
            return False
    return not any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


class AclRules(NamedTuple):
    """ACLs with what else decides: the principals that may do everything, and what is allowed without ACLs.

    ``allows_without_acls``: whether operations on a resource that no ACL matches are allowed.
    """

    table: AclTable
    super_users: frozenset[str] = frozenset()
    allows_without_acls: bool = False

    def decide(self, requester: Requester, operation: Operation, resource_type: ResourceType, name: str) -> Decision:
        """Decide about an operation on a resource."""
        if requester.principal in self.super_users:
            return SUPER_USER
        decision = self.table.decide(requester, operation, resource_type, name)
        if decision is not None:
            return decision
        return DEFAULT_ALLOW if self.allows_without_acls else DEFAULT_DENY

    def decide_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
        """Return whether an operation is allowed on some resource of a type.

        Kafka asks for a name of its own first, so that super users, and everybody where nothing is restricted, are
        allowed everything.
        """
        return self.decide(requester, operation, resource_type, PROBED_NAME).is_allowed or self.table.decide_any(
            requester, operation, resource_type
        )


PROBED_NAME: Final = "hardcode"
"""The name that Kafka asks for (Authorizer.authorizeByResourceType)."""
