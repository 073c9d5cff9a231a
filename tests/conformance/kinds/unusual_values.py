"""Values that clients do not send: empty and very long names, extreme numbers, other versions of subscriptions."""

from __future__ import annotations

from random import Random
from typing import Any

from .. import steps
from ..playing import Play
from ..random_scripts import LONG_MS, Author, Client, Moves
from ..script import Step
from .bursts import with_group
from .steady import Steady

SUFFIXES = ("", " with blanks", "-é/世", "\n", "-" + "x" * 250)
INSTANCE_IDS = ("", "é seat", "s" * 300, "a.b-c")
NUMBERS = (2**31 - 1, -(2**31), 0, -1, -2)
SESSIONS_MS = (LONG_MS, LONG_MS, 1_800_000)
REBALANCES_MS = (LONG_MS, LONG_MS, 0, -1, 2**31 - 1)
REASONS = (None, "", "r" * 1000)

# Subscriptions of topic t: version 1 with an owned partition, 3 with a generation and a rack, 9 does not exist yet.
T = "00000001000174"
SUBSCRIPTIONS = (
    "$reads t",
    "$reads ",
    f"$hex 0000{T}00000000",
    f"$hex 0001{T}ffffffff000000010001740000000100000000",
    f"$hex 0003{T}ffffffff000000000000000500046d696e65",
    f"$hex 0009{T}ffffffff00000000ffffffffffff0badcafe",
)
NAMES = ("range", "range", "range", "sticky", "", "é", "n" * 300)
WORKER_METADATA = ("$bytes worker", "$bytes ", "$hex ff00", "$bytes " + "w" * 3000)


class UnusualValues(Steady):
    """Clients of one group. The group id and a few shared instance ids are unusual."""

    def __init__(self, seed: int, run: Play) -> None:
        super().__init__(seed, run)
        self._suffix = self._chance.choice(SUFFIXES)
        self.ending = (steps.describe("Z"), steps.fetch("Z"), steps.delete_offsets("Z", {"t": [0], "u": [0]}))

    def _draw_clients(self, random: Random) -> list[Client]:
        clients = [Client(name, random.choice((None, *INSTANCE_IDS)), random) for name in "ABC"]
        for client in clients:
            client.offers = self._strange_offers(random)
        return clients

    def _note(self, step: Step) -> Step:
        return super()._note(with_group(step, f"$group{self._suffix}"))

    def _strange_offers(self, random: Random) -> Any:
        """Return protocols with distinct names: Callboard differs from Kafka for repeated ones."""
        names = dict.fromkeys(["range", *(random.choice(NAMES) for _ in range(random.choice((0, 1, 3))))])
        metadata = WORKER_METADATA if self._is_connect else SUBSCRIPTIONS
        offers = [{"name": name, "metadata": random.choice(metadata)} for name in names]
        random.shuffle(offers)
        return offers

    def _kind(self, offers: Any) -> dict[str, Any]:
        return {"protocol_type": "connect" if self._is_connect else "consumer", "protocols": offers}

    def _someone(self, client: Client) -> tuple[str, str | None]:
        member_id, instance_id = super()._someone(client)
        random = self._chance
        return random.choice((member_id, member_id, member_id, "m" * 300)), random.choice(
            (instance_id, instance_id, instance_id, *INSTANCE_IDS)
        )

    def _generation(self, client: Client) -> int:
        return self._chance.choice((super()._generation(client), self._chance.choice(NUMBERS)))

    def strange_join(self, client: Client) -> Step:
        random = self._chance
        member_id, instance_id = random.choice(("", client.member_id)), client.instance_id
        if random.random() < 0.3:
            member_id, instance_id = self._someone(client)
        step = self._join(
            client,
            member_id,
            random.choice((client.offers, self._strange_offers(random))),
            group_instance_id=instance_id,
            session_timeout=random.choice(SESSIONS_MS),
            rebalance_timeout=random.choice(REBALANCES_MS),
            reason=random.choice(REASONS),
        )
        step[2] = max(step[2], 5) if instance_id is not None else step[2]
        return step

    def strange_sync(self, client: Client) -> Step:
        member_id, instance_id = self._someone(client)
        step = self._sync(client, member_id, instance_id, self._generation(client))
        step[2] = max(step[2], 3) if instance_id is not None else step[2]
        step[3]["assignments"] += [{"member_id": "m" * 300, "assignment": "$bytes " + "a" * 2000}]
        return step

    def strange_beat(self, client: Client) -> Step:
        step = self._beat(client, *self._someone(client), self._generation(client))
        step[2] = max(step[2], 3) if step[3]["group_instance_id"] is not None else step[2]
        return step

    def strange_commit(self, client: Client) -> Step:
        step = self._commit(client, *self._someone(client), self._generation(client))
        step[2] = max(step[2], 7) if step[3]["group_instance_id"] is not None else step[2]
        return step

    def strange_leave(self, client: Client) -> Step:
        leaving = [self._someone(client) for _ in range(self._chance.choice((1, 1, 2)))]
        if any(self._is_syncing(member_id, instance_id) for member_id, instance_id in leaving):
            return self.strange_join(client)
        pairs = [
            (member_id, instance_id) if instance_id is not None else member_id for member_id, instance_id in leaving
        ]
        return steps.leave(self._line(client), *pairs, v=self._version(5, oldest=3))

    odd_moves: Moves = (
        strange_join,
        strange_join,
        strange_join,
        strange_sync,
        strange_beat,
        strange_commit,
        strange_leave,
        Author.leave,
        Author.look,
        Steady.wait,
    )
