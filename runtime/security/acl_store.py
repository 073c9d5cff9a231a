"""AclStore: the stored access control lists, as a table that decides."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Any, Final

from ..common.logs import get_logger
from .acls import Acl, AclTable, PatternType, Permission
from .document import ACLS, Section
from .resources import Operation, ResourceType
from .store import SecurityStore

log = get_logger("callboard.runtime")

ROWS: Final = "acls"
"""The key of the list in the section: each ACL is a list of seven texts, in the order of ``row_of``."""


class AclStore:
    """``table``: the ACLs that are visible. ``version``: a number that changes with them."""

    def __init__(self, store: SecurityStore) -> None:
        """Raises ValueError, KeyError or TypeError if the section is damaged."""
        self.table = AclTable()
        self.version = 0
        self._store = store
        self._read(store.get(ACLS))
        store.on_change(ACLS, self._follow)

    @property
    def is_known(self) -> bool:
        """Whether the ACLs were read: in a cluster not before its store was read for the first time."""
        return self._store.is_known

    def _read(self, section: Section) -> None:
        self.table.replace(list(map(acl_of, rows_of(section))))
        self.version += 1

    def _follow(self, section: Section) -> None:
        """Other nodes of a cluster may have written what this version cannot read: the last ACLs stay in effect."""
        try:
            self._read(section)
        except (ValueError, KeyError, TypeError) as error:
            log.error("the changed ACLs cannot be read, so the last ones stay in effect", reason=repr(error))

    def create(self, acls: Iterable[Acl], done: Callable[[Exception | None], None]) -> None:
        """Add ACLs; those that exist already stay. ``done``: when this is durable, or with the reason why not."""
        added = dict.fromkeys(acls)

        def change(section: Section) -> Section:
            before = rows_of(section)
            present = set(map(tuple, before))
            return {ROWS: [*before, *(row for row in map(row_of, added) if tuple(row) not in present)]}

        self._store.change(ACLS, change, done)

    def delete(self, acls: Collection[Acl], done: Callable[[Exception | None], None]) -> None:
        """Remove ACLs; those that are not there are no error. ``done``: as for ``create``."""
        removed = {tuple(row_of(acl)) for acl in acls}

        def change(section: Section) -> Section:
            return {ROWS: [row for row in rows_of(section) if tuple(row) not in removed]}

        self._store.change(ACLS, change, done)


def rows_of(section: Section) -> list[Any]:
    rows: list[Any] = section.get(ROWS, [])
    return rows


def row_of(acl: Acl) -> list[str]:
    """An ACL as it is stored, readable: "ALLOW", "READ", "GROUP", "LITERAL", "g", "User:alice", "*"."""
    kinds = acl.permission, acl.operation, acl.resource_type, acl.pattern
    return [*(each.name for each in kinds), acl.name, acl.principal, acl.host]


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
