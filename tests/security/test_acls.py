"""The decisions of access control lists: those of Kafka's StandardAuthorizer, and of an evaluator without indexes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random

import pytest
from property_examples import examples
from work_counter import WorkCounter

from callboard.actors.steps import run_steps
from callboard.runtime.security import acls as acls_module
from callboard.runtime.security.acls import (
    DEFAULT_ALLOW,
    DEFAULT_DENY,
    IMPLYING,
    SUPER_USER,
    Acl,
    AclRules,
    AclTable,
    Decision,
    PatternType,
    Permission,
    Requester,
)
from callboard.runtime.security.resources import Operation, ResourceType

GROUP, TOPIC = ResourceType.GROUP, ResourceType.TOPIC
ALLOW, DENY = Permission.ALLOW, Permission.DENY
ALICE = Requester("User:alice", "10.0.0.1")


def acl(
    name: str = "g",
    operation: Operation = Operation.READ,
    permission: Permission = ALLOW,
    *,
    prefix: bool = False,
    principal: str = "User:alice",
    host: str = "*",
    resource_type: ResourceType = GROUP,
) -> Acl:
    pattern = PatternType.PREFIXED if prefix else PatternType.LITERAL
    return Acl(resource_type, name, pattern, principal, host, operation, permission)


def allows(
    *acls: Acl,
    name: str = "g",
    operation: Operation = Operation.READ,
    requester: Requester = ALICE,
    resource_type: ResourceType = GROUP,
) -> bool:
    return AclRules(AclTable(acls)).decide(requester, operation, resource_type, name).is_allowed


# Rules ---------------------------------------------------------------------------------------------------------------


def test_nothing_is_allowed_without_acls() -> None:
    assert AclRules(AclTable()).decide(ALICE, Operation.READ, GROUP, "g") == DEFAULT_DENY


def test_acl_allows_its_principal_host_operation_and_resource_only() -> None:
    assert allows(acl(host="10.0.0.1"))
    assert not allows(acl(host="10.0.0.1"), requester=Requester("User:alice", "10.0.0.2"))
    assert not allows(acl(), requester=Requester("User:bob", "10.0.0.1"))
    assert not allows(acl(principal="Group:alice"))
    assert not allows(acl(), name="h")
    assert not allows(acl(), operation=Operation.DELETE)
    assert not allows(acl(), resource_type=TOPIC)


def test_any_principal_is_a_principal_of_any_type() -> None:
    assert allows(acl(principal="User:*"), requester=Requester("Group:sally", "10.0.0.1"))
    assert not allows(acl(principal="Group:*"), requester=Requester("Group:sally", "10.0.0.1"))


def test_prefix_matches_also_its_own_name_and_asterisk_only_if_it_is_literal() -> None:
    assert allows(acl(prefix=True))
    assert allows(acl(prefix=True), name="g.1")
    assert not allows(acl("g.1", prefix=True), name="g")
    assert allows(acl("*"), name="anything")
    assert not allows(acl("*", prefix=True), name="anything")
    assert allows(acl("*", prefix=True), name="*anything")


def test_prohibition_outweighs_every_permission() -> None:
    deny = acl(permission=DENY, prefix=True, principal="User:*")
    decision = AclRules(AclTable([acl(), deny, acl("*")])).decide(ALICE, Operation.READ, GROUP, "g")
    assert decision == Decision(False, deny)


@pytest.mark.parametrize("operation", [Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER])
def test_permission_includes_description_and_prohibition_does_not(operation: Operation) -> None:
    assert allows(acl(operation=operation), operation=Operation.DESCRIBE)
    describe = acl(operation=Operation.DESCRIBE)
    assert allows(describe, acl(operation=operation, permission=DENY), operation=Operation.DESCRIBE)
    assert not allows(describe, operation=operation)


def test_permission_to_alter_configs_includes_their_description() -> None:
    alter = acl(operation=Operation.ALTER_CONFIGS)
    assert allows(alter, operation=Operation.DESCRIBE_CONFIGS)
    assert not allows(alter, operation=Operation.DESCRIBE)


def test_all_covers_every_operation_in_both_directions() -> None:
    everything = acl(operation=Operation.ALL)
    assert allows(everything, operation=Operation.DELETE)
    assert not allows(everything, acl(operation=Operation.ALL, permission=DENY), operation=Operation.DELETE)


def test_super_user_is_allowed_what_is_denied() -> None:
    rules = AclRules(AclTable([acl(permission=DENY)]), frozenset({"User:alice"}))
    assert rules.decide(ALICE, Operation.READ, GROUP, "g") == SUPER_USER
    assert run_steps(rules.decide_any(ALICE, Operation.READ, GROUP))


@pytest.mark.parametrize("other", [acl(principal="User:bob"), acl("*", principal="User:bob"), acl("", prefix=True)])
def test_resource_without_acls_is_allowed_until_anybody_has_one(other: Acl) -> None:
    rules = AclRules(AclTable(), allows_without_acls=True)
    assert rules.decide(ALICE, Operation.DELETE, GROUP, "g") == DEFAULT_ALLOW
    run_steps(rules.table.replace([other]))
    assert rules.decide(ALICE, Operation.DELETE, GROUP, "g") == DEFAULT_DENY
    assert rules.decide(ALICE, Operation.DELETE, TOPIC, "g") == DEFAULT_ALLOW


@pytest.mark.parametrize(
    ("acls", "expected"),
    [
        ([], False),
        ([acl()], True),
        ([acl(operation=Operation.ALL, prefix=True)], True),
        ([acl(operation=Operation.WRITE)], False),
        ([acl(), acl(permission=DENY)], False),
        ([acl(), acl("h"), acl(permission=DENY)], True),
        ([acl("gg"), acl("g", permission=DENY, prefix=True)], False),
        ([acl("gg", prefix=True), acl("g", permission=DENY, prefix=True)], False),
        ([acl("g", prefix=True), acl("gg", permission=DENY, prefix=True)], True),
        ([acl("*"), acl("g", permission=DENY, prefix=True)], True),
        ([acl("*"), acl("*", permission=DENY)], False),
        ([acl(host="10.0.0.2")], False),
    ],
)
def test_any_resource_is_one_that_an_acl_names_and_no_other_denies(acls: list[Acl], expected: bool) -> None:
    assert run_steps(AclRules(AclTable(acls)).decide_any(ALICE, Operation.READ, GROUP)) is expected


# The same without indexes --------------------------------------------------------------------------------------------

NAMES = ("*", "a", "ab", "abc", "b", "ba", "")
PRINCIPALS = ("User:alice", "User:bob", "User:*", "Group:alice")
HOSTS = ("*", "10.0.0.1", "10.0.0.2")
OPERATIONS = (Operation.ALL, Operation.READ, Operation.DESCRIBE, Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS)


def random_acl(random: Random) -> Acl:
    return Acl(
        random.choice((GROUP, TOPIC)),
        random.choice(NAMES),
        random.choice((PatternType.LITERAL, PatternType.PREFIXED)),
        random.choice(PRINCIPALS),
        random.choice(HOSTS),
        random.choice(OPERATIONS),
        random.choice((ALLOW, ALLOW, DENY)),
    )


def matches(each: Acl, resource_type: ResourceType, name: str) -> bool:
    if each.resource_type is not resource_type:
        return False
    return name.startswith(each.name) if each.pattern is PatternType.PREFIXED else each.name in (name, "*")


def concerns(each: Acl, requester: Requester, operation: Operation) -> bool:
    """Whether an ACL that matches the resource and the principal decides about an operation."""
    if each.host not in ("*", requester.host):
        return False
    if each.operation in (Operation.ALL, operation):
        return True
    return each.permission is ALLOW and each.operation in IMPLYING.get(operation, ())


def naive(
    acls: Iterable[Acl], requester: Requester, operation: Operation, resource_type: ResourceType, name: str
) -> bool | None:
    """The decision of a scan of all ACLs; None if no ACL matches the resource."""
    of_resource = [each for each in acls if matches(each, resource_type, name)]
    permissions = {
        each.permission
        for each in of_resource
        if each.principal in (requester.principal, "User:*") and concerns(each, requester, operation)
    }
    if not of_resource:
        return None
    return permissions == {ALLOW}


def naive_any(acls: Iterable[Acl], requester: Requester, operation: Operation, resource_type: ResourceType) -> bool:
    """Whether the operation is allowed on some name, by a scan of all ACLs."""
    own = [
        each
        for each in acls
        if each.resource_type is resource_type
        and each.principal in (requester.principal, "User:*")
        and each.host in ("*", requester.host)
        and each.operation in (Operation.ALL, operation)
    ]
    denied = [(each.pattern, each.name) for each in own if each.permission is DENY]
    if (PatternType.LITERAL, "*") in denied:
        return False
    return any(
        (each.pattern, each.name) == (PatternType.LITERAL, "*")
        or not any(
            each.name.startswith(name) if pattern is PatternType.PREFIXED else (pattern, name) == each[2:0:-1]
            for pattern, name in denied
        )
        for each in own
        if each.permission is ALLOW
    )


def changed(random: Random, acls: Sequence[Acl]) -> list[Acl]:
    """Other ACLs, of which some are the same."""
    kept = [each for each in acls if random.random() < 0.7]
    return [*kept, *(random_acl(random) for _ in range(random.randrange(4)))]


@pytest.mark.parametrize("changed_at_once_max", [0, acls_module.CHANGED_AT_ONCE_MAX])
@pytest.mark.parametrize("seed", range(examples(30)))
def test_decisions_are_those_of_a_scan_while_acls_change(
    monkeypatch: pytest.MonkeyPatch, seed: int, changed_at_once_max: int
) -> None:
    monkeypatch.setattr(acls_module, "CHANGED_AT_ONCE_MAX", changed_at_once_max)
    random = Random(seed)
    acls: list[Acl] = []
    table = AclTable()
    decided = set()
    for _ in range(20):
        acls = changed(random, acls)
        run_steps(table.replace(acls))
        assert list(table.acls) == list(dict.fromkeys(acls))
        for _ in range(20):
            decided.add(check_decision(table, random))
    assert decided == {True, False, None}


def check_decision(table: AclTable, random: Random) -> bool | None:
    """Compare a decision about a random question with that of a scan."""
    requester = Requester(random.choice(PRINCIPALS), random.choice(HOSTS[1:]))
    question = random.choice(OPERATIONS[1:]), random.choice((GROUP, TOPIC)), random.choice(NAMES)
    expected = naive(table.acls, requester, *question)
    decision = table.decide(requester, *question)
    assert (decision and decision.is_allowed) == expected, (list(table.acls), requester, question)
    if decision is not None and decision != DEFAULT_DENY:
        assert decision.rule in table.acls
    expected_any = naive_any(table.acls, requester, *question[:2])
    is_allowed = run_steps(table.decide_any(requester, *question[:2]))
    assert is_allowed == expected_any, (list(table.acls), requester, question)
    return expected


@pytest.mark.parametrize("changed_at_once_max", [0, acls_module.CHANGED_AT_ONCE_MAX])
def test_acls_change_together_between_two_steps(monkeypatch: pytest.MonkeyPatch, changed_at_once_max: int) -> None:
    monkeypatch.setattr(acls_module, "CHANGED_AT_ONCE_MAX", changed_at_once_max)
    random = Random(7)
    before, after = ([random_acl(random) for _ in range(100)] for _ in range(2))
    table = AclTable(before)
    seen: list[bool] = []
    for _ in table.replace(after):
        seen.append(list(table.acls) == list(dict.fromkeys(after)))
        assert seen[-1] or list(table.acls) == list(dict.fromkeys(before))
        for _ in range(50):
            check_decision(table, random)
    assert not seen[0] and seen[-1] and seen == sorted(seen)


# The work of a decision ----------------------------------------------------------------------------------------------


def many(count: int) -> dict[str, list[Acl]]:
    """ACLs of one principal, which an evaluator without the right index reads all."""
    names = [f"g{number}" for number in range(count)]
    return {
        "other operations": [acl(name, Operation.WRITE) for name in names],
        "other hosts": [acl("*", host=f"10.1.{number >> 8}.{number & 255}") for number in range(count)],
        "each name denied": [acl(name, permission=permission) for name in names for permission in (ALLOW, DENY)],
        "all denied by a prefix": [acl("g", permission=DENY, prefix=True), *(acl(name) for name in names)],
        "other names denied": [acl("g"), *(acl(name, permission=DENY) for name in names)],
        "prefixes": [acl(name, prefix=True) for name in names],
    }


@pytest.mark.parametrize("shape", many(0))
def test_decisions_do_not_read_all_acls_of_a_principal(shape: str) -> None:
    lines = []
    for count in (300, 600):
        table, counter = AclTable(many(count)[shape]), WorkCounter()
        with counter.counting():
            table.decide(ALICE, Operation.READ, GROUP, "g7")
            counter.end_piece()
            for _ in table.decide_any(ALICE, Operation.READ, GROUP):
                counter.end_piece()
            counter.end_piece()
        lines.append(counter.longest)
    assert 0 < lines[0] == lines[1]


def test_decision_about_any_resource_is_made_again_if_the_acls_change_meanwhile() -> None:
    """The permission that is added belongs to a name that was looked at already."""
    denied = [acl(f"g{number}", permission=permission) for number in range(99) for permission in (ALLOW, DENY)]
    table = AclTable(denied)
    steps = table.decide_any(ALICE, Operation.READ, GROUP)
    next(steps)
    run_steps(table.replace([each for each in denied if each.name != "g0" or each.permission is ALLOW]))
    assert run_steps(steps)
