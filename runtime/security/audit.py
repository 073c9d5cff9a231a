"""The audit trail: who was let in and who was refused, what was denied, and what was changed.

A line is a JSON object. ``docs/security.md`` describes its fields.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol


class Who(NamedTuple):
    """Who has sent a request. Code in the process of an embedded coordinator has no ``host`` and no ``port``."""

    principal: str
    host: str = ""
    port: int | None = None
    client_id: str = ""
    listener: str = ""


class Asked(NamedTuple):
    """The request: ``api`` is Kafka's name, "DeleteGroups", or a method's, "Coordinator.delete".

    ``asked_on`` and ``done_on``: the ids of two nodes of a cluster, if one was asked and the other has done it.
    """

    api: str
    version: int | None = None
    asked_on: int | None = None
    done_on: int | None = None


class AskedBy(NamedTuple):
    """On whose behalf a program, or another node, asks for something. ``reason``: why."""

    who: Who
    asked: Asked
    reason: str


class Change(NamedTuple):
    """A change of one resource, such as "Group:orders". ``operation``: what was done to it, such as "delete".

    ``before`` and ``after``: JSON; None if there was nothing.
    """

    operation: str
    resource: str
    before: Any = None
    after: Any = None


def alteration(resource: str, before: Mapping[str, Any], after: Mapping[str, Any]) -> Change | None:
    """The values by name that have changed; None if none have."""
    names = sorted(name for name in before.keys() | after.keys() if before.get(name) != after.get(name))
    if not names:
        return None
    return Change("alter", resource, *({name: table.get(name) for name in names} for table in (before, after)))


class Audit(Protocol):
    """Keeps the audit trail. All methods return at once and raise nothing."""

    @property
    def is_on(self) -> bool:
        """Whether anything is kept. It does not change."""

    @property
    def failure(self) -> str:
        """Why lines cannot be written; "" if they can."""

    @property
    def refusal(self) -> str:
        """Why changes must be refused, as the trail cannot be written and ``audit_required`` is set; else ""."""

    def authenticated(self, who: Who, mechanism: str, details: Mapping[str, str]) -> None:
        """A client has proved who it is. ``details``: such as the serial number of its certificate."""

    def refused(self, who: Who, mechanism: str, reason: str) -> None:
        """A client could not prove who it is. ``who.principal`` is what it claims, or ""."""

    def denied(self, who: Who, asked: Asked, operation: str, resources: Sequence[str]) -> None:
        """The authorizer denies an operation on resources, such as "Group:orders"."""

    def changed(self, who: Who, asked: Asked, changes: Iterable[Change], reason: str = "", change_id: str = "") -> str:
        """One request has changed resources. ``reason``: the client's own. Returns the id of the change.

        ``change_id``: that of earlier changes of the same request.
        """

    async def close(self) -> None:
        """Write what is not written yet. Later events are not kept."""


class NoAudit:
    """Keeps nothing."""

    is_on = False
    failure = ""
    refusal = ""

    def authenticated(self, who: Who, mechanism: str, details: Mapping[str, str]) -> None: ...

    def refused(self, who: Who, mechanism: str, reason: str) -> None: ...

    def denied(self, who: Who, asked: Asked, operation: str, resources: Sequence[str]) -> None: ...

    def changed(self, who: Who, asked: Asked, changes: Iterable[Change], reason: str = "", change_id: str = "") -> str:
        return ""

    async def close(self) -> None: ...


NO_AUDIT: Final = NoAudit()
