"""The clients that the other kinds begin with: those of ``random_scripts``, with times that are further apart.

Nothing here is over within a few seconds of what else may be over, however slowly the steps before it were taken: what
is short ends in the long wait, once or twice in a row, and not before.
"""

from __future__ import annotations

from typing import Any

from .. import steps
from ..playing import Play
from ..random_scripts import LONG_MS, REBALANCE_SHORT_MS, SESSION_SHORT_MS, Author, Client, Moves
from ..script import Step

SHORTER_MS = {SESSION_SHORT_MS: 5000, REBALANCE_SHORT_MS: 5500, LONG_MS: LONG_MS}
WAITS_MS = (2000, 12_000)


class Steady(Author):
    """Waits once for a moment, and once for long."""

    waits_ms: tuple[int, ...] = WAITS_MS

    def __init__(self, seed: int, run: Play) -> None:
        super().__init__(seed, run)
        self._waits_left = list(self.waits_ms)
        for client in self._clients:
            client.session_ms = SHORTER_MS[client.session_ms]
            client.rebalance_ms = SHORTER_MS[client.rebalance_ms]

    def _join(self, client: Client, member_id: str, offers: Any, **changes: Any) -> Step:
        """No id that was just given out joins with a seat: that is where we differ (docs/conformance.md)."""
        seat = changes.get("group_instance_id", client.seat)
        is_given_out = member_id.startswith(tuple(f"${one.name}" for one in self._clients))
        return super()._join(client, "" if seat is not None and is_given_out else member_id, offers, **changes)

    def wait(self, client: Client) -> Step:
        if not self._waits_left:
            return self.look(client)
        ms = self._chance.choice(self._waits_left)
        self._waits_left.remove(ms)
        return steps.wait(ms)

    odd_moves: Moves = (*(move for move in Author.odd_moves if move is not Author.wait), wait)
