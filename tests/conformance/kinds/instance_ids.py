"""Static members that rejoin with changed fields or share an instance id; requests to remove many members."""

from __future__ import annotations

from random import Random
from typing import Any

from .. import steps
from ..random_scripts import LONG_MS, ODD_OFFERS, REBALANCE_SHORT_MS, SESSION_SHORT_MS, Client, Moves
from ..script import Step
from .steady import SHORTER_MS, Steady

INSTANCE_IDS = ("a", "a", "b", "c", None)
EXTRA_PROTOCOL = [*steps.BOTH, {"name": "third", "metadata": "$reads u"}]
NAMELESS_PROTOCOL = [{"name": "", "metadata": "$reads t"}, *steps.RANGE]
NO_TOPICS = [{"name": "range", "metadata": "$reads "}]
OFFERS = (*ODD_OFFERS, EXTRA_PROTOCOL, NAMELESS_PROTOCOL, NO_TOPICS)
LEAVING_MAX = 5


class InstanceIds(Steady):
    """Mostly static members, with three instance ids in common."""

    def _draw_clients(self, random: Random) -> list[Client]:
        return [Client(name, random.choice(INSTANCE_IDS), random) for name in "ABCD"[: random.randint(2, 4)]]

    def come_back(self, client: Client) -> Step:
        """Rejoin with the own or another's instance id, with or without a member id, and with changed fields."""
        random = self._chance
        other = random.choice(self._clients)
        instance_id = random.choice((client.instance_id, client.instance_id, other.instance_id))
        member_id = random.choice(("", "", client.member_id, other.member_id))
        changes: dict[str, Any] = {
            "group_instance_id": instance_id,
            "session_timeout": random.choice((client.session_ms, LONG_MS, SHORTER_MS[SESSION_SHORT_MS])),
            "rebalance_timeout": random.choice((client.rebalance_ms, LONG_MS, SHORTER_MS[REBALANCE_SHORT_MS])),
        }
        if random.random() < 0.1:
            changes["protocol_type"] = random.choice(("", "connect"))
        if random.random() < 0.1:
            changes["session_timeout"] = random.choice((499, 1_800_001, 0, -1))
        return self._join_as(client, member_id, random.choice(OFFERS), changes)

    def _join_as(self, client: Client, member_id: str, offers: Any, changes: dict[str, Any]) -> Step:
        step = self._join(client, member_id, offers, **changes)
        step[2] = max(step[2], 5) if changes["group_instance_id"] else step[2]
        return step

    def leave_several(self, client: Client) -> Step:
        """Remove members with and without instance ids, fenced, unknown and repeated ones."""
        leaving = [self._someone(self._chance.choice(self._clients)) for _ in range(LEAVING_MAX)]
        leaving = leaving[: self._chance.randint(0, LEAVING_MAX)]
        if any(self._is_syncing(member_id, instance_id) for member_id, instance_id in leaving):
            return self.come_back(client)
        pairs = [(member_id, instance_id) if instance_id else member_id for member_id, instance_id in leaving]
        return steps.leave(self._line(client), *pairs, v=self._version(5, oldest=3))

    def odd_assignments(self, client: Client) -> Step:
        """Send assignments for unknown members or none, from the leader or a follower."""
        step = self.odd_sync(client)
        step[3]["assignments"] += [
            {"member_id": member_id, "assignment": f"$bytes {text}"}
            for member_id, text in self._chance.choice(
                ([], [("nobody", "none")], [(client.member_id, "again"), ("", "")])
            )
        ]
        return step

    odd_moves: Moves = (
        come_back,
        come_back,
        come_back,
        come_back,
        leave_several,
        leave_several,
        odd_assignments,
        Steady.odd_sync,
        Steady.odd_beat,
        Steady.odd_commit,
        Steady.look,
        Steady.wait,
        Steady.disconnect,
    )
