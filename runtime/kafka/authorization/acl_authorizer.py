"""AclAuthorizer: decides by access control lists, as Kafka's StandardAuthorizer."""

from __future__ import annotations

from collections.abc import Sequence

from ....actors.steps import Steps
from ...security.acl_store import AclStore
from ...security.acls import AclRules, Requester
from ...security.resources import Operation, ResourceType
from ..connections.framing import NotServed
from .authorizer import Action, RequestContext


class AclAuthorizer:
    """Implements ``Authorizer``."""

    allows_everything = False

    def __init__(self, acls: AclStore, super_users: frozenset[str], *, allows_without_acls: bool) -> None:
        """``super_users``: principals that may do everything, "User:alice".

        ``allows_without_acls``: whether everything is allowed on a resource that no ACL matches.
        """
        self.acls = acls
        self._rules = AclRules(acls.table, super_users, allows_without_acls)

    @property
    def version(self) -> int:
        return self.acls.version

    def authorize(self, context: RequestContext, actions: Sequence[Action]) -> Sequence[bool]:
        rules, requester = self._current_rules(), _requester(context)
        return [
            rules.decide(requester, operation, resource_type, name).is_allowed
            for operation, resource_type, name, _ in actions
        ]

    def authorize_any(self, context: RequestContext, operation: Operation, resource_type: ResourceType) -> Steps[bool]:
        return self._current_rules().decide_any(_requester(context), operation, resource_type)

    def _current_rules(self) -> AclRules:
        """Raises NotServed while the ACLs are not known: clients connect again, but take a denial as final."""
        if not self.acls.is_known:
            raise NotServed("the ACLs are not known yet: the store of the cluster was not read")
        return self._rules


def _requester(context: RequestContext) -> Requester:
    return Requester(str(context.principal), context.host)
