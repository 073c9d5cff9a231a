"""Topics that are deleted and made again under the same names, while groups commit to them.

Kafka deletes their offsets some time after its answer, so a script waits there.
"""

from __future__ import annotations

from random import Random
from typing import Any

from .. import steps
from ..playing import Play
from ..random_scripts import LONG_MS, Client, Moves
from ..script import Plain, Step
from .offsets import Committers

NAMES = ("$group.x", "$group.y")
CHANGES_MAX = 5
SETTLED_MS = 1500


class Movers(Committers):
    """Clients that read two topics of their own, which come and go."""

    def __init__(self, seed: int, run: Play) -> None:
        super().__init__(seed, run)
        self._made = dict.fromkeys(NAMES, 0)
        self._are_there: set[str] = set()
        self._changes = CHANGES_MAX
        self._must_wait = False

    def _draw_clients(self, chance: Random) -> list[Client]:
        clients = super()._draw_clients(chance)[:2]
        for client in clients:
            client.session_ms = client.rebalance_ms = LONG_MS
            client.offers = [{"name": "range", "metadata": f"$reads {chance.choice(NAMES)}"}]
        return clients

    def next_step(self) -> Step | None:
        if self._must_wait:
            self._must_wait = False
            return self._note(steps.wait(SETTLED_MS))
        if not self.script:
            return self._note(self.change(self._clients[0]))
        return super().next_step()

    def change(self, client: Client) -> Step:
        """One of the topics comes, or goes, or both in turn."""
        if self._changes <= 0:
            return self.rich_commit(client)
        self._changes -= 1
        self._must_wait = True
        name = self._chance.choice(NAMES)
        if name in self._are_there:
            self._are_there.remove(name)
            return ["T", "delete_topics", 5, {"topic_names": [name], "timeout": 30_000}]
        self._are_there.add(name)
        self._made[name] += 1
        count = self._chance.randint(1, 2)
        topic = {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
        return ["T", "create_topics", 7, {"topics": [topic], "timeout": 30_000, "validate_only": False}]

    def _topic(self) -> Plain:
        """One of the own topics, by its id of today or of old."""
        name = self._chance.choice(NAMES)
        parts = [self._part() for _ in range(self._chance.choice((1, 2)))]
        return {"name": name, "topic_id": self._id_of(name), "partitions": parts}

    def _id_of(self, name: str) -> str:
        made = self._chance.randint(0, self._made[name])
        return "$uuid 7" if not made else f"$topic {name}" if made == 1 else f"$topic {name}#{made}"

    def _wanted(self, client: Client, version: int) -> Any:
        wanted = super()._wanted(client, version)
        for topic in wanted["topics"] or ():
            topic["name"] = self._chance.choice(NAMES)
            topic["topic_id"] = self._id_of(topic["name"])
        return wanted

    def delete_own(self, client: Client) -> Step:
        step = self.delete_offsets(client)
        for topic in step[3]["topics"]:
            topic["name"] = self._chance.choice(NAMES)
        return step

    odd_moves: Moves = (
        change,
        change,
        change,
        Committers.rich_commit,
        Committers.rich_commit,
        Committers.rich_commit,
        Committers.rich_fetch,
        Committers.rich_fetch,
        delete_own,
        Committers.delete_groups,
        Committers.leave,
        Committers.odd_join,
    )
