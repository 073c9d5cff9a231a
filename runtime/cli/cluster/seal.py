"""``callboard cluster seal``: ends a node's session by force."""

from __future__ import annotations

from typing import NamedTuple

from ....actors.text import format_count
from ...cluster.operator import Operator
from ...cluster.register import Register
from ...cluster.session_environment import SessionEnvironment
from ...cluster.store import Store
from .nodes import SignOfLife, environment_of, look_for_sign, session_of


class SealPlan(NamedTuple):
    """What sealing a session means. ``heirs``: the nodes that get its partitions."""

    node: str
    session: str
    partitions: int
    heirs: list[str]
    sign: SignOfLife
    environment: SessionEnvironment

    def describe(self, *, is_done: bool) -> list[str]:
        """What will happen, or has happened, in sentences."""
        would, moves = ("was", "moved") if is_done else ("would be", "would move")
        heirs = ", ".join(self.heirs) or "the next node that joins"
        partitions = format_count(self.partitions, "partition")
        return [
            self._sign_of_life(),
            f"the WAL of session {self.session} {would} sealed: it acknowledges nothing any more",
            f"{partitions} {moves} to {heirs}",
            *([] if self.sign.is_silent else [self._return()]),
        ]

    def _sign_of_life(self) -> str:
        timeout_s = self.environment.ttl_s
        if self.sign.is_silent:
            return f"{self.node} shows no sign of life for {timeout_s:g} s"
        return (
            f"{self.node} is alive: callboard cluster drain {self.node} moves its partitions without an interruption; "
            f"after a seal nobody serves them for {timeout_s:g} s"
        )

    def _return(self) -> str:
        return f"the process of {self.node} joins again as another session, unless it is stopped or cut off"


async def plan_seal(store: Store, register: Register, node: str) -> SealPlan:
    """Raises CommandFailed for a node that is not there. Takes up to one session timeout, to see whether it lives."""
    environment, session = environment_of(register), session_of(register, node)
    entry, owned = register.nodes[session], register.owned(session)
    after = register.without_nodes([session])
    heirs = sorted({after.nodes[owner].name for owner in map(after.owners.__getitem__, owned) if owner})
    sign = await look_for_sign(store, environment, session)
    return SealPlan(entry.name, session, len(owned), heirs, sign, environment)


async def seal(store: Store, plan: SealPlan) -> None:
    counter = plan.sign.counter if plan.sign.is_silent else None
    await Operator(store, plan.environment).seal(plan.session, counter)
