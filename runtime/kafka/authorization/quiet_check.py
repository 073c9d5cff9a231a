"""Asks the authorizer without recording a denial: whoever handles the request asks again, and records it."""

from __future__ import annotations

from ..call import Call
from .authorizer import Action, RequestContext
from .checks import Check


def would_allow(call: Call, check: Check, name: str) -> bool:
    """Whether an item of a request is allowed."""
    authorizer = call.services.authorizer
    if authorizer.allows_everything:
        return True
    return authorizer.authorize(context_of(call), [Action(check.operation, check.resource_type, name, False)])[0]


def context_of(call: Call) -> RequestContext:
    connection = call.connection
    host = connection.client_host.removeprefix("/")
    return RequestContext(call.principal, host, connection.client_id, call.schema.name, call.version)
