"""Records in the audit trail what a request has changed. Nothing is computed without an audit trail."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ....actors.errors import ErrorCode
from ....actors.steps import Steps, pieces
from ...security.audit import Asked, Audit, Change, Who, alteration
from ...security.document import EMPTY, Section
from ...security.resources import ResourceType
from ..call import Call, ResponseChannel
from ..connections.client_ids import shown_client_id
from ..connections.request_names import api_title
from ..lease import Handler

Done = Callable[[Any], None]
"""Called with None, or why a change was not made."""


class Sections:
    """A section of the security store before and after the change of one request. Other changes may share its write."""

    before: Section = EMPTY
    after: Section = EMPTY


class SeenChange:
    """A change of values by name that remembers them as they were before and after it.

    It is called when its write begins, which other changes may share. If it is called again, the last call counts.
    """

    def __init__(
        self, change: Callable[[Any], Mapping[str, Any]], value_of: Callable[[Any], Any] | None = None
    ) -> None:
        """``value_of``: what the audit trail has instead of a value."""
        self._before: Mapping[str, Any] = {}
        self._after: Mapping[str, Any] = {}
        self._change = change
        self._value_of = value_of

    def __call__(self, before: Mapping[str, Any]) -> Any:
        self._before, self._after = before, self._change(before)
        return self._after

    def alteration(self, resource: str) -> Change | None:
        return alteration(resource, self._shown(self._before), self._shown(self._after))

    def _shown(self, values: Mapping[str, Any]) -> Mapping[str, Any]:
        value_of = self._value_of
        return values if value_of is None else {name: value_of(value) for name, value in values.items()}


def who(connection: ResponseChannel) -> Who:
    """Who sends requests on a connection."""
    port = connection.peer.rpartition(":")[2]
    return Who(
        str(connection.principal),
        connection.client_host.removeprefix("/"),
        int(port) if port.isascii() and port.isdigit() else None,
        shown_client_id(connection.client_id),
        connection.listener,
    )


def asked(call: Call) -> Asked:
    return Asked(api_title(call.schema.name), call.version)


def resource_text(resource_type: ResourceType, name: str) -> str:
    """The text of a resource, "TransactionalId:t"."""
    return f"{api_title(resource_type.name.lower())}:{name}"


def record(call: Call, changes: Iterable[Change], reason: str = "") -> None:
    """Record the few changes of a request."""
    call.services.audit.changed(who(call.connection), asked(call), changes, reason)


def record_in_steps(call: Call, changes: Iterable[Change | None]) -> Steps[None]:
    """Record the changes of a request; None: something that was not changed."""
    audit, change_id = call.services.audit, ""
    if not audit.is_on:
        return
    sender, request = who(call.connection), asked(call)
    for piece in pieces(changes):
        if made := [change for change in piece if change is not None]:
            change_id = audit.changed(sender, request, made, change_id=change_id)
        yield


def recorded(call: Call, done: Done, changed: Callable[[], Change | None]) -> Done:
    """Return ``done``, which also records a change if it was made. ``changed`` returns it."""
    if not call.services.audit.is_on:
        return done

    def record_and_finish(failure: object) -> None:
        if failure is None:
            change = changed()
            record(call, [] if change is None else [change])
        done(failure)

    return record_and_finish


def unless_refused(handle: Handler, audit: Audit) -> Handler:
    """Return a handler of changes that refuses them while the audit trail is required and cannot be written."""

    def handle_or_refuse(call: Call) -> Steps[None] | None:
        if not audit.refusal:
            return handle(call)
        call.services.over_limit.name_refused(call.connection, api_title(call.schema.name), audit.refusal)
        call.respond_with_error(ErrorCode.KAFKA_STORAGE_ERROR)
        return None

    return handle_or_refuse
