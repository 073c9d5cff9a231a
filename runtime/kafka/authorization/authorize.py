"""``authorize``: the only way of API modules to the authorizer."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final, NamedTuple

from ....actors.errors import ErrorCode
from ....actors.steps import Steps, pieces, run_steps
from ...security.resources import CLUSTER_NAME, Operation, ResourceType
from ..api import find_row
from ..audit.audited import asked, resource_text, who
from ..call import Call
from .authorizer import Action, Authorizer, RequestContext
from .checks import Check, Denied
from .grants import GRANTS_MAX, NAME_CHARS_MAX, Grant, Grants
from .quiet_check import context_of

CLUSTER: Final = (CLUSTER_NAME,)
"""The items of a check of the cluster."""

OPERATIONS: Final = {
    ResourceType.GROUP: (3, 6, 8, 10, 11),
    ResourceType.TOPIC: (3, 4, 5, 6, 7, 8, 10, 11),
    ResourceType.CLUSTER: (5, 7, 8, 9, 10, 11, 12),
}
"""The operations of each type of resource (AclEntry.supportedOperations)."""

GRANTED_AT_ONCE_MAX: Final = 100
"""The permissions of a request with more items are not remembered."""


class Verdicts(NamedTuple):
    """The verdicts on items. ``denied``: the names of those that are denied. ``code``: their error."""

    denied: frozenset[str]
    code: ErrorCode

    @property
    def error(self) -> ErrorCode:
        """The error of the whole request: ``code`` if any item is denied, else NONE."""
        return self.code if self.denied else ErrorCode.NONE

    def error_of(self, name: str) -> ErrorCode:
        return self.code if name in self.denied else ErrorCode.NONE

    def allows(self, name: str) -> bool:
        return name not in self.denied


ALL_ALLOWED: Final = Verdicts(frozenset(), ErrorCode.NONE)


def allows_everything(call: Call) -> bool:
    """Return whether no check can deny anything, so that what only checks need is not computed."""
    return call.services.authorizer.allows_everything


def authorize(call: Call, check: Check, names: Iterable[str] = CLUSTER) -> Verdicts:
    """Check the items of a request, by the names of their resources. The row of the API must name the check.

    The names are not read if everything is allowed.
    """
    if allows_everything(call):
        return ALL_ALLOWED
    return run_steps(authorize_in_steps(call, check, names))


def authorize_in_steps(call: Call, check: Check, names: Iterable[str]) -> Steps[Verdicts]:
    """The same for many names. The authorizer gets ``ITEMS_PER_STEP`` of them at a time."""
    authorizer = call.services.authorizer
    if authorizer.allows_everything:
        return ALL_ALLOWED
    row = find_row(call.schema.name)
    if check not in row.whole and check not in row.items:
        raise AssertionError(f"the row of {row.name} does not name the check {check}")
    context = context_of(call)
    items: dict[str, None] = {}
    for piece in pieces(names):
        items.update(dict.fromkeys(piece))
        yield
    if not items or (yield from _is_allowed_by_other(authorizer, context, check)):
        return ALL_ALLOWED
    operation, resource_type = check.operation, check.resource_type
    granted = _grants_of(call) if _may_be_remembered(check, len(items)) else None
    denied: set[str] = set()
    for piece in pieces(items):
        if granted:
            piece = [name for name in piece if (operation, resource_type, name) not in granted]
        actions = [Action(operation, resource_type, name, check.logs_denials) for name in piece]
        verdicts = authorizer.authorize(context, actions) if actions else ()
        refused = [name for name, is_allowed in zip(piece, verdicts, strict=True) if not is_allowed]
        denied.update(refused)
        if refused and check.logs_denials:
            _record_denials(call, check, refused)
        if granted is not None:
            allowed = (name for name in piece if name not in denied and len(name) <= NAME_CHARS_MAX)
            granted.update((operation, resource_type, name) for name in allowed)
        yield
    return Verdicts(frozenset(denied), check.denial.code) if denied else ALL_ALLOWED


def _record_denials(call: Call, check: Check, names: Sequence[str]) -> None:
    call.services.denials[check.operation.name] += len(names)
    audit = call.services.audit
    if audit.is_on:
        resources = [resource_text(check.resource_type, name) for name in names]
        audit.denied(who(call.connection), asked(call), check.operation.name, resources)


def _grants_of(call: Call) -> set[Grant] | None:
    """The remembered permissions of a connection, to add to them; None if those of the authorizer may change."""
    channel, version = call.connection, call.services.authorizer.version
    if version is None:
        return None
    grants = channel.grants
    if grants is None or grants.version != version or len(grants.allowed) >= GRANTS_MAX:
        grants = channel.grants = Grants(version)
    return grants.allowed


def _may_be_remembered(check: Check, items: int) -> bool:
    """Only the permissions of a few resources that a request names, and that no other right of the client gives."""
    return check.unless is None and check.denied is Denied.ERROR and items <= GRANTED_AT_ONCE_MAX


def are_granted(call: Call, check: Check, names: Iterable[str]) -> bool:
    """Whether each item is known to be allowed, without asking: a short way for frequent requests."""
    granted = _grants_of(call)
    if not granted:
        return False
    operation, resource_type = check.operation, check.resource_type
    return all((operation, resource_type, name) in granted for name in names)


def _is_allowed_by_other(authorizer: Authorizer, context: RequestContext, check: Check) -> Steps[bool]:
    """Whether the operation ``unless`` of the check allows all items. As in Kafka, its denial is not logged."""
    if check.unless is None:
        return False
    operation, resource_type = check.unless
    if resource_type is ResourceType.CLUSTER:
        return authorizer.authorize(context, [Action(operation, resource_type, CLUSTER_NAME, False)])[0]
    is_allowed = authorizer.authorize_any(context, operation, resource_type)
    return is_allowed if isinstance(is_allowed, bool) else (yield from is_allowed)


def audience(call: Call) -> Hashable:
    """Requests of one audience get the same verdicts, so they may share an answer."""
    return None if call.services.authorizer.allows_everything else call


def authorized_operations(call: Call, resource_type: ResourceType, name: str) -> int:
    """Return the operations that the client may carry out on a resource: bit n is operation n (KIP-430)."""
    authorizer, operations = call.services.authorizer, OPERATIONS[resource_type]
    if not authorizer.allows_everything:
        actions = [Action(Operation(number), resource_type, name, False) for number in operations]
        verdicts = authorizer.authorize(context_of(call), actions)
        operations = tuple(number for number, allowed in zip(operations, verdicts, strict=True) if allowed)
    return sum(1 << number for number in operations)
