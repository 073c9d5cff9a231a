"""Access control lists: which of them match a request, and what follows. The rules are those of Kafka's
StandardAuthorizer (KIP-801), with prefixes (KIP-290). Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from enum import Enum, IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from ...actors.steps import ITEMS_PER_STEP, Steps, distinct, pieces, run_steps
from .resources import Operation, ResourceType

CHANGED_AT_ONCE_MAX: Final = 200
"""Changes of the indexes in one step. Each takes some microseconds."""

NAMES_PER_STEP: Final = 16
"""Names that are compared with all prohibitions in one step, whose prefixes may have many lengths."""

ANY_NAME: Final = "*"
"""The literal name of an ACL for all resources of a type."""
ANY_PRINCIPAL: Final = "User:*"
ANY_HOST: Final = "*"


T = TypeVar("T")


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


class Question(NamedTuple):
    """What ACLs decide together: those of a question differ only in the name of the resource and its pattern."""

    resource_type: ResourceType
    principal: str
    host: str
    operation: Operation
    permission: Permission


class Names:
    """The names and prefixes of ACLs, with how many ACLs have each."""

    __slots__ = ("literal", "prefix_lengths", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, int] = {}
        self.prefixed: dict[str, int] = {}
        self.prefix_lengths: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)

    def add(self, acl: Acl) -> None:
        if acl.pattern is PatternType.PREFIXED:
            _increment(self.prefixed, acl.name)
            _increment(self.prefix_lengths, len(acl.name))
        else:
            _increment(self.literal, acl.name)

    def remove(self, acl: Acl) -> None:
        """Remove an ACL that is there."""
        if acl.pattern is PatternType.PREFIXED:
            _decrement(self.prefixed, acl.name)
            _decrement(self.prefix_lengths, len(acl.name))
        else:
            _decrement(self.literal, acl.name)

    def clear(self) -> Steps[None]:
        """Free everything."""
        yield from _emptied(self.literal)
        yield from _emptied(self.prefixed)

    def match(self, name: str) -> tuple[str, PatternType] | None:
        """The name and the pattern of an ACL that matches the name of a resource; None if there is none."""
        for literal in (name, ANY_NAME):
            if literal in self.literal:
                return literal, PatternType.LITERAL
        prefix = self.prefix_of(name)
        return None if prefix is None else (prefix, PatternType.PREFIXED)

    def prefix_of(self, name: str) -> str | None:
        """A prefix of a name; None if there is none."""
        for length in self.prefix_lengths:
            if length <= len(name) and name[:length] in self.prefixed:
                return name[:length]
        return None


class AclIndexes:
    """The names of ACLs by question, and by the type of the resource: no decision reads all ACLs."""

    def __init__(self) -> None:
        self._by_type: dict[ResourceType, Names] = {}
        self._by_question: dict[Question, Names] = {}

    def add(self, acl: Acl) -> None:
        self._by_type.setdefault(acl.resource_type, Names()).add(acl)
        self._by_question.setdefault(_question_of(acl), Names()).add(acl)

    def remove(self, acl: Acl) -> None:
        """Remove an ACL that is there."""
        self._by_type[acl.resource_type].remove(acl)
        question = _question_of(acl)
        self._by_question[question].remove(acl)
        if not self._by_question[question]:
            del self._by_question[question]

    def change(self, removed: Iterable[Acl], added: Iterable[Acl]) -> None:
        for acl in removed:
            self.remove(acl)
        for acl in added:
            self.add(acl)

    def clear(self) -> Steps[None]:
        """Free everything, in steps: this takes a third of a microsecond for each ACL."""
        while self._by_question:
            for _ in range(min(len(self._by_question), ITEMS_PER_STEP)):
                _, names = self._by_question.popitem()
                yield from names.clear()
            yield
        while self._by_type:
            _, names = self._by_type.popitem()
            yield from names.clear()

    def has(self, resource_type: ResourceType, name: str) -> bool:
        """Whether any ACL matches a resource."""
        names = self._by_type.get(resource_type)
        return names is not None and names.match(name) is not None

    def find(
        self, permission: Permission, requester: Requester, operations: Iterable[Operation], resource_type: ResourceType
    ) -> Iterator[tuple[Question, Names]]:
        """The names of the ACLs that allow or deny one of the operations to a requester."""
        for operation in operations:
            for principal in (requester.principal, ANY_PRINCIPAL):
                for host in (ANY_HOST, requester.host):
                    question = Question(resource_type, principal, host, operation, permission)
                    names = self._by_question.get(question)
                    if names is not None:
                        yield question, names


def _question_of(acl: Acl) -> Question:
    return Question(acl.resource_type, acl.principal, acl.host, acl.operation, acl.permission)


def _increment(counts: dict[T, int], key: T) -> None:
    counts[key] = counts.get(key, 0) + 1


def _decrement(counts: dict[T, int], key: T) -> None:
    if counts[key] > 1:
        counts[key] -= 1
    else:
        del counts[key]


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
        for permission, operations in ((Permission.DENY, (operation,)), (Permission.ALLOW, _allowing(operation))):
            questions = self._indexes.find(permission, requester, (Operation.ALL, *operations), resource_type)
            for question, names in questions:
                match = names.match(name)
                if match is not None:
                    return Decision(permission is Permission.ALLOW, _acl_of(question, *match))
        return DEFAULT_DENY if self._indexes.has(resource_type, name) else None

    def decide_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> Steps[bool]:
        """Return whether an operation is allowed on some name that an ACL has (Authorizer.authorizeByResourceType).

        Only ACLs of the very operation, or of all, count. A name is not allowed if it is denied itself, or has a denied
        prefix. If the ACLs change meanwhile, it is decided again.
        """
        version = None
        is_allowed = False
        while version != self.version:
            version = self.version
            is_allowed = yield from self._decide_any(requester, operation, resource_type)
        return is_allowed

    def _decide_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> Steps[bool]:
        allowed, denied = (
            [names for _, names in self._indexes.find(permission, requester, (Operation.ALL, operation), resource_type)]
            for permission in (Permission.ALLOW, Permission.DENY)
        )
        if any(ANY_NAME in names.literal for names in denied):
            return False
        for names in allowed:
            if (yield from _has_permitted(names, denied)):
                return True
        return False


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


def _allowing(operation: Operation) -> Collection[Operation]:
    """The operations whose permission includes an operation."""
    return IMPLYING.get(operation, (operation,))


def _acl_of(question: Question, name: str, pattern: PatternType) -> Acl:
    resource_type, principal, host, operation, permission = question
    return Acl(resource_type, name, pattern, principal, host, operation, permission)


def _has_permitted(allowed: Names, denied: Sequence[Names]) -> Steps[bool]:
    """Whether there is a permission whose names no prohibition covers. ``allowed`` is not empty."""
    if not denied or ANY_NAME in allowed.literal:
        return True
    for name_piece in pieces(tuple(allowed.literal), NAMES_PER_STEP):
        for name in name_piece:
            if not any(name in names.literal or names.prefix_of(name) is not None for names in denied):
                return True
        yield
    for prefixes in pieces(tuple(allowed.prefixed), NAMES_PER_STEP):
        if any(all(names.prefix_of(prefix) is None for names in denied) for prefix in prefixes):
            return True
        yield
    return False


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

    def decide_any(self, requester: Requester, operation: Operation, resource_type: ResourceType) -> Steps[bool]:
        """Return whether an operation is allowed on some resource of a type.

        Kafka asks for a name of its own first, so that super users, and everybody where nothing is restricted, are
        allowed everything.
        """
        if self.decide(requester, operation, resource_type, PROBED_NAME).is_allowed:
            return True
        return (yield from self.table.decide_any(requester, operation, resource_type))


PROBED_NAME: Final = "hardcode"
"""The name that Kafka asks for (Authorizer.authorizeByResourceType)."""
