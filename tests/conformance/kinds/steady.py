"""The base class of the other kinds: the clients of ``random_scripts``, with larger differences between timeouts.

No two timeouts expire within a few seconds of each other, whatever the duration of the steps before. Short timeouts
expire only in the long wait, once or twice in a row.
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
    """Scripts with one short and one long wait."""

    waits_ms: tuple[int, ...] = WAITS_MS

    def __init__(self, seed: int, run: Play) -> None:
        super().__init__(seed, run)
        self._waits_left = list(self.waits_ms)
        for client in self._clients:
            client.session_ms = SHORTER_MS[client.session_ms]
            client.rebalance_ms = SHORTER_MS[client.rebalance_ms]

    def _join(self, client: Client, member_id: str, offers: Any, **changes: Any) -> Step:
        """Join static members without a generated id: there Callboard differs from Kafka (docs/conformance.md)."""
        instance_id = changes.get("group_instance_id", client.instance_id)
        is_new_id = member_id.startswith(tuple(f"${other.name}" for other in self._clients))
        return super()._join(client, "" if instance_id is not None and is_new_id else member_id, offers, **changes)

    def wait(self, client: Client) -> Step:
        if not self._waits_left:
            return self.look(client)
        ms = self._chance.choice(self._waits_left)
        self._waits_left.remove(ms)
        return steps.wait(ms)

    odd_moves: Moves = (*(move for move in Author.odd_moves if move is not Author.wait), wait)
