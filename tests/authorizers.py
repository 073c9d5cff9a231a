"""An authorizer for tests, which denies what a test tells it to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from callboard.runtime.kafka.authorization.authorizer import Action, RequestContext
from callboard.runtime.security.resources import Operation, ResourceType


class Rule(NamedTuple):
    """Denies an operation on a type of resource; on all of them without a name."""

    operation: Operation
    resource_type: ResourceType
    name: str | None = None


class DenyingAuthorizer:
    """Allows everything but ``denied``, and keeps what it was asked."""

    allows_everything = False
    version = None
    acls = None

    def __init__(self, *denied: Rule) -> None:
        self.denied = set(denied)
        self.contexts: list[RequestContext] = []
        self.actions: list[Action] = []

    def authorize(self, context: RequestContext, actions: Sequence[Action]) -> Sequence[bool]:
        self.contexts.append(context)
        self.actions += actions
        return [self._allows(action) for action in actions]

    def _allows(self, action: Action) -> bool:
        operation, resource_type, name, _ = action
        return self.denied.isdisjoint((Rule(operation, resource_type, name), Rule(operation, resource_type)))

    def authorize_any(self, _context: RequestContext, operation: Operation, resource_type: ResourceType) -> bool:
        return Rule(operation, resource_type) not in self.denied
