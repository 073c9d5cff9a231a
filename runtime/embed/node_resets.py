"""NodeResets: what this process's node keeps and knows for resets of groups."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from ...actors.errors import CoordinatorError, ErrorCode
from ..node.reset_records import ResetRecord, ResetRecords
from .audited_requests import ASKED_BY, WHO

if TYPE_CHECKING:
    from ..node.node import Node

TRANSACTIONS_PER_TURN = 1000


class NodeResets:
    """The records of resets in its data folder, its clock and its ids."""

    def __init__(self, node: Node) -> None:
        self._node = node
        self._records = ResetRecords(node.environment.disk, node.data.folder.path, node.data.files)

    def new_id(self) -> str:
        """An id for a change."""
        return self._node.environment.random.uuid()

    def now_ms(self) -> int:
        """Wall-clock time."""
        return self._node.environment.clock.wall_ms()

    def caller(self) -> tuple[str, str]:
        """On whose behalf a method is called, and why, if that is known."""
        asked_by = ASKED_BY.get()
        return (WHO.principal, "") if asked_by is None else (asked_by.who.principal, asked_by.reason)

    async def keep(self, record: ResetRecord) -> str:
        """Store a record. Returns why it could not be stored; "" if it was."""
        try:
            await self._records.keep(record)
        except OSError as error:
            return error.strerror or str(error)
        return ""

    async def find(self, change_id: str) -> ResetRecord | None:
        """The record of a change. Raises CoordinatorError if the disk fails."""
        try:
            return await self._records.find(change_id)
        except OSError as error:
            raise _unreadable(error) from error

    async def of_group(self, group: str, *, needs_all: bool = False) -> list[ResetRecord]:
        """The records of a group, the newest first. Raises CoordinatorError if the disk fails.

        ``needs_all``: see ``ClusterResets``.
        """
        try:
            return await self._records.of_group(group)
        except OSError as error:
            raise _unreadable(error) from error

    async def transactional_id(self, producer_id: int) -> str:
        """Of a producer that this node coordinates; "" if there is none."""
        for piece in self._node.services.transaction_table.pieces(TRANSACTIONS_PER_TURN):
            for transaction in piece:
                if transaction.value.producer_id == producer_id:
                    return transaction.transactional_id
            await asyncio.sleep(0)
        return ""


def _unreadable(error: OSError) -> CoordinatorError:
    return CoordinatorError(ErrorCode.KAFKA_STORAGE_ERROR, f"the records of resets: {error.strerror or error}")
