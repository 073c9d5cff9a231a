"""Groups with an initial rebalance delay, full groups, and offsets that expire.

The differences between timeouts are large enough that the same ones expire in the same wait at every speed.
"""

from __future__ import annotations

from random import Random
from typing import Any

from ..playing import Play
from ..random_scripts import LONG_MS, Client, Moves
from ..script import Step
from .offsets import Committers
from .steady import Steady

INITIAL_DELAY_MS = 8000
DELAY_WAITS_MS = (2000, 20_000)
STEPS_WITHOUT_WAIT = 8
RETENTION_MS = 12_000
EXPIRING_WAITS_MS = (2000, 25_000, 25_000)


class Delayed(Steady):
    """A few clients join and leave before the first generation."""

    waits_ms = DELAY_WAITS_MS

    def _draw_clients(self, random: Random) -> list[Client]:
        clients = super()._draw_clients(random)
        for client in clients:
            client.session_ms = LONG_MS
            client.rebalance_ms = LONG_MS
        return clients

    def __init__(self, seed: int, run: Play) -> None:
        super().__init__(seed, run)
        self._count = min(self._count, 30)
        self._since_wait = 0

    def next_step(self) -> Step | None:
        self._since_wait += 1
        if self._since_wait > STEPS_WITHOUT_WAIT and self._waits_left:
            return self._note(self.wait(self._clients[0]))
        return super().next_step()

    def wait(self, client: Client) -> Step:
        self._since_wait = 0
        return super().wait(client)

    odd_moves: Moves = (
        Steady.odd_join,
        Steady.odd_join,
        Steady.wrong_join,
        Steady.odd_sync,
        Steady.odd_beat,
        Steady.leave,
        Steady.leave,
        Steady.look,
        wait,
        wait,
        Steady.disconnect,
    )


class FullGroups(Steady):
    """Four clients of a group of at most three members."""

    def _draw_clients(self, random: Random) -> list[Client]:
        clients = [Client(name, random.choice((None, None, name.lower())), random) for name in "ABCD"]
        self._is_connect = False
        return clients

    odd_moves: Moves = (*Steady.odd_moves, Steady.odd_join, Steady.odd_join, Steady.disconnect)


class Expiries(Committers):
    """Commits with a retention time (v2 to v4) that expires in the next wait or never."""

    waits_ms = EXPIRING_WAITS_MS

    def _draw_clients(self, random: Random) -> list[Client]:
        clients = super()._draw_clients(random)[:2]
        for client in clients:
            client.session_ms = client.rebalance_ms = LONG_MS
        return clients

    def rich_commit(self, client: Client) -> Step:
        step = super().rich_commit(client)
        if self._chance.random() < 0.7:
            step[2] = self._chance.randint(2, 4)
        step[3]["retention_time"] = self._chance.choice((RETENTION_MS, RETENTION_MS, 10 * LONG_MS, -1))
        return step

    def _join(self, client: Client, member_id: str, offers: Any, **changes: Any) -> Step:
        """Join without pending members: Kafka may remove a group without other members at any time."""
        step = super()._join(client, member_id, offers, **changes)
        if not step[3]["group_instance_id"]:
            step[2] = min(step[2], 3)
        return step

    odd_moves: Moves = (
        *Committers.odd_moves,
        Committers.rich_commit,
        Committers.wait,
        Committers.wait,
        Committers.wait,
    )
