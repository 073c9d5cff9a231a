"""Members that come back to their seats with something else than before, several to a seat; leaves of whole crowds."""

from __future__ import annotations

from random import Random
from typing import Any

from .. import steps
from ..random_scripts import LONG_MS, ODD_OFFERS, REBALANCE_SHORT_MS, SESSION_SHORT_MS, Client, Moves
from ..script import Step
from .steady import SHORTER_MS, Steady

SEATS = ("a", "a", "b", "c", None)
EXTRA_PROTOCOL = [*steps.BOTH, {"name": "third", "metadata": "$reads u"}]
NAMELESS_PROTOCOL = [{"name": "", "metadata": "$reads t"}, *steps.RANGE]
NOTHING_READ = [{"name": "range", "metadata": "$reads "}]
OFFERS = (*ODD_OFFERS, EXTRA_PROTOCOL, NAMELESS_PROTOCOL, NOTHING_READ)
LEAVING_MAX = 5


class Sitters(Steady):
    """Mostly static members, who share three seats."""

    def _draw_clients(self, chance: Random) -> list[Client]:
        return [Client(name, chance.choice(SEATS), chance) for name in "ABCD"[: chance.randint(2, 4)]]

    def come_back(self, client: Client) -> Step:
        """To the same seat, or to another's, as somebody who was never here, or with the id; with other wishes."""
        chance = self._chance
        other = chance.choice(self._clients)
        seat = chance.choice((client.seat, client.seat, other.seat))
        who = chance.choice(("", "", client.member_id, other.member_id))
        changes: dict[str, Any] = {
            "group_instance_id": seat,
            "session_timeout": chance.choice((client.session_ms, LONG_MS, SHORTER_MS[SESSION_SHORT_MS])),
            "rebalance_timeout": chance.choice((client.rebalance_ms, LONG_MS, SHORTER_MS[REBALANCE_SHORT_MS])),
        }
        if chance.random() < 0.1:
            changes["protocol_type"] = chance.choice(("", "connect"))
        if chance.random() < 0.1:
            changes["session_timeout"] = chance.choice((499, 1_800_001, 0, -1))
        return self._join_as(client, who, chance.choice(OFFERS), changes)

    def _join_as(self, client: Client, who: str, offers: Any, changes: dict[str, Any]) -> Step:
        step = self._join(client, who, offers, **changes)
        step[2] = max(step[2], 5) if changes["group_instance_id"] else step[2]
        return step

    def crowd_leaves(self, client: Client) -> Step:
        """Members with and without their seats, fenced, unknown, the same twice."""
        leaving = [self._someone(self._chance.choice(self._clients)) for _ in range(LEAVING_MAX)]
        leaving = leaving[: self._chance.randint(0, LEAVING_MAX)]
        if any(self._is_syncing(who, seat) for who, seat in leaving):
            return self.come_back(client)
        pairs = [(who, seat) if seat else who for who, seat in leaving]
        return steps.leave(self._line(client), *pairs, v=self._version(5, oldest=3))

    def odd_assignments(self, client: Client) -> Step:
        """For members who are not there, or for nobody, from a leader or not."""
        step = self.odd_sync(client)
        step[3]["assignments"] += [
            {"member_id": who, "assignment": f"$bytes {text}"}
            for who, text in self._chance.choice(([], [("nobody", "none")], [(client.member_id, "again"), ("", "")]))
        ]
        return step

    odd_moves: Moves = (
        come_back,
        come_back,
        come_back,
        come_back,
        crowd_leaves,
        crowd_leaves,
        odd_assignments,
        Steady.odd_sync,
        Steady.odd_beat,
        Steady.odd_commit,
        Steady.look,
        Steady.wait,
        Steady.disconnect,
    )
