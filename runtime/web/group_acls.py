"""Who may do what with a group, as far as ACLs say so."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final, NamedTuple

from ..node.node import Node
from ..security.acl_filters import AclFilter
from ..security.acls import Acl, AclRules, PatternType, Requester
from ..security.resources import Operation, ResourceType
from ..settings.authorization import parse_principals

OPERATIONS: Final = (Operation.READ, Operation.DESCRIBE, Operation.DELETE)
PIECE: Final = 256
"""ACLs that are compared without a pause of the loop."""


class WhoMay(NamedTuple):
    """``is_allowed``: for each of ``OPERATIONS``. ``principal`` and ``host`` are those of ACLs, "*" for all."""

    principal: str
    host: str
    is_allowed: tuple[bool, ...]


class GroupAcls(NamedTuple):
    """``acls``: those that match the group. ``who``: everybody that they name, and super users.

    ``is_open``: whether everybody may do everything, because no ACL matches and the settings say so.
    """

    acls: Sequence[Acl]
    who: Sequence[WhoMay]
    is_open: bool


async def read_acls(node: Node, group: str) -> GroupAcls | None:
    """None if there are no ACLs. On the node's loop."""
    store = node.services.acls
    if store is None:
        return None
    wanted, found = AclFilter(ResourceType.GROUP, group, PatternType.MATCH), list[Acl]()
    acls = tuple(store.table.acls)
    for first in range(0, len(acls), PIECE):
        found += filter(wanted.matches, acls[first : first + PIECE])
        await asyncio.sleep(0)
    settings = node.settings
    super_users, is_open = parse_principals(settings.super_users), settings.allow_everyone_if_no_acl_found
    return acls_of(found, AclRules(store.table, super_users, is_open), group)


def acls_of(found: Sequence[Acl], rules: AclRules, group: str) -> GroupAcls:
    """``found``: the ACLs that match a group."""
    requesters = dict.fromkeys(Requester(acl.principal, acl.host) for acl in found)
    requesters |= dict.fromkeys(Requester(principal, "*") for principal in rules.super_users)
    who = [_who_may(requester, rules, group) for requester in sorted(requesters)]
    return GroupAcls(sorted(found), who, not found and rules.allows_without_acls)


def _who_may(requester: Requester, rules: AclRules, group: str) -> WhoMay:
    decisions = (rules.decide(requester, operation, ResourceType.GROUP, group) for operation in OPERATIONS)
    return WhoMay(*requester, tuple(decision.is_allowed for decision in decisions))
