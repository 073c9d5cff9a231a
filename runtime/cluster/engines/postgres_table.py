"""The table of ``postgres``: how it is found and created."""

from __future__ import annotations

import asyncpg

HAS_TABLE = "to_regclass('callboard.store') is not null"
# One transaction. ``storage`` as part of ``create table`` came with version 16.
CREATE_TABLE = """create schema if not exists callboard;
create table callboard.store (key text collate "C" primary key, value bytea not null);
alter table callboard.store alter column value set storage external;"""
MADE_BY_ANOTHER_NODE = (
    asyncpg.UniqueViolationError,
    asyncpg.DuplicateSchemaError,
    asyncpg.DuplicateTableError,
    asyncpg.DuplicateObjectError,
)


class Table:
    """``is_known``: the table was seen or created by this store.

    The first write creates it, so a command that only reads changes nothing in a database that was given by mistake.
    It is not created a second time: a cluster that found an empty store would begin from nothing.
    """

    def __init__(self) -> None:
        self.is_known = False
