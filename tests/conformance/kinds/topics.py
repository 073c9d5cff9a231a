"""Topics that are deleted and created again with the same names, while groups commit offsets for them.

Kafka deletes the offsets some time after the response, so a script waits after each deletion.
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
    """Clients that read two topics, which the script creates and deletes."""

    def __init__(self, seed: int, run: Play) -> None:
        super().__init__(seed, run)
        self._creations = dict.fromkeys(NAMES, 0)
        self._existing: set[str] = set()
        self._changes = CHANGES_MAX
        self._must_wait = False

    def _draw_clients(self, random: Random) -> list[Client]:
        clients = super()._draw_clients(random)[:2]
        for client in clients:
            client.session_ms = client.rebalance_ms = LONG_MS
            client.offers = [{"name": "range", "metadata": f"$reads {random.choice(NAMES)}"}]
        return clients

    def next_step(self) -> Step | None:
        if self._must_wait:
            self._must_wait = False
            return self._note(steps.wait(SETTLED_MS))
        if not self.script:
            return self._note(self.change(self._clients[0]))
        return super().next_step()

    def change(self, client: Client) -> Step:
        """Create or delete one of the topics."""
        if self._changes <= 0:
            return self.rich_commit(client)
        self._changes -= 1
        self._must_wait = True
        name = self._chance.choice(NAMES)
        if name in self._existing:
            self._existing.remove(name)
            return ["T", "delete_topics", 5, {"topic_names": [name], "timeout": 30_000}]
        self._existing.add(name)
        self._creations[name] += 1
        count = self._chance.randint(1, 2)
        topic = {"name": name, "num_partitions": count, "replication_factor": 1, "assignments": [], "configs": []}
        return ["T", "create_topics", 7, {"topics": [topic], "timeout": 30_000, "validate_only": False}]

    def _topic(self) -> Plain:
        """Return one of the script's topics with partitions, by its current or an old id."""
        name = self._chance.choice(NAMES)
        partitions = [self._part() for _ in range(self._chance.choice((1, 2)))]
        return {"name": name, "topic_id": self._id_of(name), "partitions": partitions}

    def _id_of(self, name: str) -> str:
        count = self._chance.randint(0, self._creations[name])
        return "$uuid 7" if not count else f"$topic {name}" if count == 1 else f"$topic {name}#{count}"

    def _wanted(self, client: Client, version: int) -> Any:
        request = super()._wanted(client, version)
        for topic in request["topics"] or ():
            topic["name"] = self._chance.choice(NAMES)
            topic["topic_id"] = self._id_of(topic["name"])
        return request

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
