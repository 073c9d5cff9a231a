"""AclStore: the stored access control lists, as a table that decides."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Final

from ...actors.steps import Steps, pieces, run_steps
from ..common.logs import get_logger
from .acls import Acl, AclTable, PatternType, Permission
from .document import ACLS, Section
from .resources import Operation, ResourceType
from .store import SecurityStore

log = get_logger("callboard.runtime")

ROWS: Final = "acls"
"""The key of the list in the section: each ACL is a list of seven texts, in the order of ``row_of``."""

ChangeDone = Callable[[Exception | None, Collection[Acl]], None]
"""Called when a change is durable, or with the reason why not; and with the ACLs that it has added or removed."""


class AclStore:
    """``table``: the ACLs that are visible. A change takes time for each stored ACL, and is made in steps."""

    def __init__(self, store: SecurityStore) -> None:
        """Raises ValueError, KeyError or TypeError if the section is damaged."""
        self.table = AclTable()
        self._store = store
        run_steps(self._read(store.get(ACLS)))
        store.on_change(ACLS, self._follow)

    @property
    def is_known(self) -> bool:
        """Whether the ACLs were read: in a cluster not before its store was read for the first time."""
        return self._store.is_known

    @property
    def version(self) -> int:
        """A number that changes with the ACLs."""
        return self.table.version

    def _read(self, section: Section) -> Steps[None]:
        acls: list[Acl] = []
        for piece in pieces(rows_of(section)):
            acls += map(acl_of, piece)
            yield
        yield from self.table.replace(acls)

    def _follow(self, section: Section) -> Steps[None]:
        """Other nodes of a cluster may have written what this version cannot read: the last ACLs stay in effect."""
        try:
            yield from self._read(section)
        except (ValueError, KeyError, TypeError) as error:
            log.error("the changed ACLs cannot be read, so the last ones stay in effect", reason=repr(error))

    def create(self, acls: Collection[Acl], done: ChangeDone) -> None:
        """Add ACLs; those that exist already stay."""
        created: list[Acl] = []

        def change(section: Section) -> Steps[Section]:
            before, added = rows_of(section), (yield from _by_row(acls))
            for piece in pieces(before):
                for row in piece:
                    added.pop(tuple(row), None)
                yield
            created[:] = added.values()
            return {ROWS: [*before, *map(list, added)]}

        self._store.change(ACLS, change, lambda failure: done(failure, created))

    def delete(self, acls: Collection[Acl], done: ChangeDone) -> None:
        """Remove ACLs; those that are not there are no error."""
        deleted: list[Acl] = []

        def change(section: Section) -> Steps[Section]:
            removed = yield from _by_row(acls)
            deleted.clear()
            kept: list[Any] = []
            for piece in pieces(rows_of(section)):
                for row in piece:
                    acl = removed.get(tuple(row))
                    if acl is None:
                        kept.append(row)
                    else:
                        deleted.append(acl)
                yield
            return {ROWS: kept}

        self._store.change(ACLS, change, lambda failure: done(failure, deleted))


def _by_row(acls: Collection[Acl]) -> Steps[dict[tuple[str, ...], Acl]]:
    """Each ACL once, by its stored form."""
    by_row: dict[tuple[str, ...], Acl] = {}
    for piece in pieces(acls):
        by_row.update((row_of(acl), acl) for acl in piece)
        yield
    return by_row


def rows_of(section: Section) -> list[Any]:
    rows: list[Any] = section.get(ROWS, [])
    return rows


def row_of(acl: Acl) -> tuple[str, ...]:
    """An ACL as it is stored, readable: "ALLOW", "READ", "GROUP", "LITERAL", "g", "User:alice", "*"."""
    kinds = acl.permission, acl.operation, acl.resource_type, acl.pattern
    return (*(each.name for each in kinds), acl.name, acl.principal, acl.host)


def acl_of(row: Any) -> Acl:
    """The opposite of ``row_of``. Raises ValueError, KeyError or TypeError if it is damaged."""
    permission, operation, resource_type, pattern, name, principal, host = row
    if not all(isinstance(text, str) for text in row):
        raise TypeError(f"the ACL {row!r}: expected seven texts")
    return Acl(
        ResourceType[resource_type],
        name,
        PatternType[pattern],
        principal,
        host,
        Operation[operation],
        Permission[permission],
    )
