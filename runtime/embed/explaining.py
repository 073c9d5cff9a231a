"""Why a group is as it is: its last rebalances, from the flight recorder, and what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...actors.errors import CoordinatorError, ErrorCode
from ...actors.recorder.explanation import explain
from ...actors.recorder.flight_recorder import RECORDS_KEPT
from .arguments import check_group
from .results import GroupExplanation, RebalanceRecord

if TYPE_CHECKING:
    from .admin_requests import AdminRequests


class Explaining:
    """Methods of a coordinator. Call them on its event loop; they wait until its log is loaded."""

    def _requests(self) -> AdminRequests:
        """Asks the running coordinator. Raises RuntimeError if it does not run, or on another event loop."""
        raise NotImplementedError

    async def explain(self, group: str, *, limit: int = 10) -> GroupExplanation:
        """Why a group rebalanced, what it waits for, and what looks wrong. ``limit``: of the rebalances in it.

        Raises CoordinatorError GROUP_ID_NOT_FOUND for a group that is unknown and has no record.
        """
        check_group(group)
        return await explain_group(self._requests(), group, _checked(limit))

    async def rebalances(self, group: str, *, limit: int = RECORDS_KEPT) -> tuple[RebalanceRecord, ...]:
        """The last rebalances of a group, the newest first; at most 50 are kept. Empty for an unknown group."""
        check_group(group)
        records, _now = await self._requests().rebalances(group)
        return records[: _checked(limit)]


async def explain_group(requests: AdminRequests, group: str, limit: int) -> GroupExplanation:
    """See ``Explaining.explain``."""
    records, now = await requests.rebalances(group)
    if now is None and not records:
        raise CoordinatorError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group!r}: there is no such group")
    return GroupExplanation(group, *explain(records, now, limit))


def _checked(limit: int) -> int:
    if type(limit) is not int or limit < 1:
        raise ValueError(f"limit={limit!r}: expected a whole number >= 1")
    return limit
