"""Authorizer: decides which principal may do what.

Only ``authorize.py``, ``quiet_check.py`` and the table of routes use it.

API modules call ``authorize`` with a check that the row of their API names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from ....actors.steps import Steps
from ...security.acl_store import AclStore
from ...security.resources import Operation, ResourceType
from ..authentication.principal import Principal


class RequestContext(NamedTuple):
    """Who sends which request. ``host``: the client's address, "127.0.0.1". ``api``: kio's name, "join_group"."""

    principal: Principal
    host: str
    client_id: str
    api: str
    version: int


class Action(NamedTuple):
    """An operation on one resource. ``logs_denial``: whether a denial belongs into the log, as for Kafka's Action."""

    operation: Operation
    resource_type: ResourceType
    name: str
    logs_denial: bool = True


class Authorizer(Protocol):
    """Called on the event loop, so it must not block."""

    @property
    def allows_everything(self) -> bool:
        """Whether it need not be asked. Read once for each version of an API, so it must not change."""

    @property
    def version(self) -> int | None:
        """A number that changes whenever less may be allowed than before; None: permissions must not be remembered."""

    @property
    def acls(self) -> AclStore | None:
        """The ACLs that it decides by, which clients may see and change; None if it has no ACLs."""

    def authorize(self, context: RequestContext, actions: Sequence[Action]) -> Sequence[bool]:
        """Return for each action whether it is allowed. Raises NotServed to close the connection instead."""

    def authorize_any(
        self, context: RequestContext, operation: Operation, resource_type: ResourceType
    ) -> bool | Steps[bool]:
        """Return whether an operation is allowed on some resource of a type, as Kafka's authorizeByResourceType."""


class AllowAll:
    """Allows every principal everything, as Kafka without an authorizer."""

    allows_everything = True
    version = None
    acls = None

    def authorize(self, _context: RequestContext, actions: Sequence[Action]) -> Sequence[bool]:
        return (True,) * len(actions)

    def authorize_any(self, _context: RequestContext, _operation: Operation, _resource_type: ResourceType) -> bool:
        return True
