"""ACLs in a cluster: each node decides by those that any node was given."""

from __future__ import annotations

from functools import partial

import pytest
from acl_helpers import change_acls

from callboard.runtime.disk.group_commit import outcome_of
from callboard.runtime.kafka.authentication.principal import Principal
from callboard.runtime.kafka.authorization.acl_authorizer import AclAuthorizer
from callboard.runtime.kafka.authorization.authorizer import Action, RequestContext
from callboard.runtime.kafka.connections.framing import NotServed
from callboard.runtime.security.acl_store import ROWS, AclStore
from callboard.runtime.security.acls import Acl, PatternType, Permission
from callboard.runtime.security.document import ACLS
from callboard.runtime.security.resources import Operation, ResourceType

from .shared_topics_helpers import TopicsNode
from .test_shared_topics import on_nodes

ALICE = RequestContext(Principal("User", "alice"), "10.0.0.1", "client", "heartbeat", 4)
READ = Action(Operation.READ, ResourceType.GROUP, "g")


def acl(permission: Permission) -> Acl:
    return Acl(ResourceType.GROUP, "g", PatternType.LITERAL, "User:alice", "*", Operation.READ, permission)


def allows(authorizer: AclAuthorizer) -> bool:
    [is_allowed] = authorizer.authorize(ALICE, [READ])
    return is_allowed


def test_node_decides_by_acls_of_other_node_as_soon_as_it_reads_them() -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        here, there = AclStore(a.security), AclStore(b.security)
        authorizer = AclAuthorizer(there, frozenset(), allows_without_acls=True)
        with pytest.raises(NotServed, match="the ACLs are not known yet"):
            allows(authorizer)  # there may be an ACL that denies it
        await b.follow()
        assert allows(authorizer)
        for change, permission, is_allowed in (
            (here.create, Permission.DENY, False),
            (here.create, Permission.ALLOW, False),
            (here.delete, Permission.DENY, True),
        ):
            version = authorizer.version
            await change_acls(change, [acl(permission)])
            await b.follow()
            assert allows(authorizer) is is_allowed
            assert authorizer.version != version

    on_nodes(test)


def test_acls_that_cannot_be_read_leave_the_last_ones_in_effect(caplog: pytest.LogCaptureFixture) -> None:
    async def test(a: TopicsNode, b: TopicsNode) -> None:
        here, there = AclStore(a.security), AclStore(b.security)
        await change_acls(here.create, [acl(Permission.ALLOW)])
        await b.follow()
        later = {ROWS: [["ALLOW", "READ", "GROUP", "REGEX", "g.*", "User:alice", "*"]]}
        assert await outcome_of(partial(a.security.change, ACLS, lambda _section: later)) is None
        await b.follow()
        assert list(there.table.acls) == [acl(Permission.ALLOW)]
        assert "the last ones stay in effect" in caplog.text

    on_nodes(test)
