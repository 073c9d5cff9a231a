"""Members of the consumer protocol (KIP-848): correct and incorrect heartbeats, commits, leaves and descriptions.

The result of the assignor ``uniform`` for several topics depends on their ids, which differ between servers. So the
members of a script either subscribe to one topic, or use ``range``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any

from .. import consumer_steps, steps
from ..playing import Play
from ..random_scripts import LONG_MS, Author, Client, Moves
from ..script import Plain, Step

PARTITIONS = {"t": 3, "u": 1, "never-made": 2}
TOPIC_IDS = {"t": "$topic t", "u": "$topic u", "never-made": "$uuid 7"}
SUBSCRIPTIONS = (("t",), ("t",), ("t", "u"), ("u",), ("u", "never-made"), ())
ONE_TOPIC = (("t",), ("t",), ("t",), ("t", "never-made"), ())
ASSIGNORS = (None, "uniform", "range")
LEFT_EPOCHS = (-1, -2)
OWNED_BY_NOBODY = {"t": [0, 7], "u": [1], "never-made": [0]}
SESSION_MS = 8000  # of the kind ``consumer-sessions``
REBALANCE_SHORT_MS = 4000
RESET_ERRORS = ("UNKNOWN_MEMBER_ID", "FENCED_MEMBER_EPOCH", "GROUP_ID_NOT_FOUND", "FENCED_INSTANCE_ID")

Owned = Mapping[str, Sequence[int]]


class ConsumerClient(Client):
    """A member. ``generation`` is its epoch. ``assigned``: by its last response. ``owned``: what it has told."""

    def __init__(self, name: str, instance_id: str | None, random: Random, topics: Sequence[str]) -> None:
        super().__init__(name, instance_id, random)
        self.topics = topics
        self.version = random.choice((1, 1, 1, 0))
        self.rebalance_ms = random.choice((LONG_MS, LONG_MS, REBALANCE_SHORT_MS))
        self.assigned: Owned = {}
        self.owned: Owned = {}
        self.reset()

    def reset(self) -> None:
        """It is no member any more."""
        self.member_id, self.generation, self.needs = self.name, 0, "join"
        self.assigned = self.owned = {}

    def hear(self, api: str, response: Any) -> None:
        if api != "consumer_group_heartbeat":
            return
        error, epoch = response["error_code"], response["member_epoch"]
        if error in RESET_ERRORS or (error == "NONE" and epoch in LEFT_EPOCHS):
            self.reset()
        elif error == "NONE":
            self.member_id, self.generation, self.needs = response["member_id"], epoch, "nothing"
            self.ids = [*dict.fromkeys([*self.ids, self.member_id])]
            if response["assignment"] is not None:
                self.assigned = _by_topic(response["assignment"]["topic_partitions"])


def _by_topic(items: Sequence[Plain]) -> Owned:
    names = {topic_id: name for name, topic_id in TOPIC_IDS.items()}
    return {names[item["topic_id"]]: item["partitions"] for item in items}


def listed(owned: Owned) -> list[dict[str, Any]]:
    return [{"topic_id": TOPIC_IDS[name], "partitions": list(numbers)} for name, numbers in owned.items()]


class Consumers(Author):
    """The members of one group, some of them static, and others that commit, describe, evict and delete."""

    ending: Sequence[Step] = (consumer_steps.describe_consumers("Z"), steps.fetch("Z"))

    def _draw_clients(self, random: Random) -> list[Client]:
        self._instance_ids: dict[str, str | None] = {}  # by member id
        self._has_several_topics = random.random() < 0.5
        self._subscriptions = SUBSCRIPTIONS if self._has_several_topics else ONE_TOPIC
        shared = random.choice((None, "seat"))
        instance_ids = [random.choice((None, None, name.lower(), shared)) for name in "ABCD"]
        return [
            ConsumerClient(name, instance_id, random, random.choice(self._subscriptions[:-1]))
            for name, instance_id in zip("ABCD"[: random.randint(2, 4)], instance_ids, strict=False)
        ]

    def _asker(self, name: str, values: Any) -> Client | None:
        """The client whose member id a request has; without an id, the client that sends it."""
        member_id = values.get("member_id")
        return next(
            (
                client
                for client in self._clients
                if (client.member_id == member_id if member_id else client.name == name)
            ),
            None,
        )

    # Heartbeats ------------------------------------------------------------------------------------------------------

    def _heartbeat(self, client: Client, epoch: int, owned: Owned | None = None, **changes: Any) -> Step:
        assert isinstance(client, ConsumerClient)
        values = {"member_id": client.member_id, "instance_id": client.instance_id, **changes}
        if owned is not None:
            values["topic_partitions"] = listed(owned)
        version = client.version if values["member_id"] else 1  # in version 0 the server would choose a random one
        return consumer_steps.beat(self._line(client), epoch, None, version, **values)

    def _enter(self, client: Client, **changes: Any) -> Step:
        """A join. A member id keeps its instance id: else Callboard differs from Kafka (docs/conformance.md)."""
        assert isinstance(client, ConsumerClient)
        values = {
            "member_id": client.member_id,
            "instance_id": client.instance_id,
            "rebalance_timeout": client.rebalance_ms,
            "subscribed_topic_names": list(client.topics),
            "server_assignor": self._assignor(),
            **changes,
        }
        values["instance_id"] = self._instance_ids.setdefault(values["member_id"], values["instance_id"])
        return self._heartbeat(client, 0, {}, **values)

    def _assignor(self) -> str | None:
        return "range" if self._has_several_topics else self._chance.choice(ASSIGNORS)

    def _good_move(self, client: Client) -> Step:
        assert isinstance(client, ConsumerClient)
        if client.needs == "join":
            return self._enter(client)
        kept = {
            name: numbers
            for name in client.assigned
            if (numbers := [number for number in client.assigned[name] if number in client.owned.get(name, ())])
        }
        is_done = client.owned == client.assigned
        client.owned = client.assigned if kept == client.owned else kept
        if not is_done:
            return self._heartbeat(client, client.generation, client.owned)
        return self._chance.choice((self.idle, self.full, self.subscribe, self.commit))(client)

    def idle(self, client: Client) -> Step:
        return self._heartbeat(client, client.generation)

    def full(self, client: Client) -> Step:
        assert isinstance(client, ConsumerClient)
        changes = {"rebalance_timeout": client.rebalance_ms, "subscribed_topic_names": list(client.topics)}
        return self._heartbeat(client, client.generation, client.owned, **changes)

    def subscribe(self, client: Client) -> Step:
        """Another subscription."""
        assert isinstance(client, ConsumerClient)
        client.topics = self._chance.choice(self._subscriptions)
        owned = self._chance.choice((None, client.owned))
        return self._heartbeat(client, client.generation, owned, subscribed_topic_names=list(client.topics))

    def odd_heartbeat(self, client: Client) -> Step:
        """Of this or another member, in this or another epoch, with wrong partitions."""
        member_id, instance_id = self._someone(client)
        other = self._chance.choice(self._clients)
        assert isinstance(other, ConsumerClient)
        owned = self._chance.choice((None, {}, other.owned, other.assigned, OWNED_BY_NOBODY, {"t": [2, 0, 2]}))
        changes: Any = self._chance.choice(
            (
                *({} for _ in range(6)),
                {"rack_id": ""},
                {"server_assignor": "none"},
                {"instance_id": ""},
                {"rack_id": "r"},
            )
        )
        epoch = self._chance.choice((self._generation(client), client.generation, client.generation - 1, -3))
        return self._heartbeat(client, epoch, owned, **{"member_id": member_id, "instance_id": instance_id, **changes})

    def enter_again(self, client: Client) -> Step:
        return self._enter(client)

    def odd_enter(self, client: Client) -> Step:
        """With another member id, which takes the place of a static member, or without what a join needs."""
        member_id, instance_id = self._someone(client)
        changes: Any = self._chance.choice(
            (
                {"member_id": member_id, "instance_id": instance_id},
                {"member_id": f"{client.name}-new"},
                {"member_id": f"{client.name}-new"},
                {"rebalance_timeout": -1},
                {"subscribed_topic_names": None},
                {"topic_partitions": listed({"t": [1]})},
                {"topic_partitions": None},
                {"server_assignor": ""},
            )
        )
        return self._enter(client, **changes)

    def depart(self, client: Client) -> Step:
        """For good, or for a while, which only static members may."""
        return self._heartbeat(client, self._chance.choice(LEFT_EPOCHS))

    def odd_depart(self, client: Client) -> Step:
        member_id, instance_id = self._someone(client)
        epoch = self._chance.choice(LEFT_EPOCHS)
        return self._heartbeat(client, epoch, member_id=member_id, instance_id=instance_id)

    # Other requests --------------------------------------------------------------------------------------------------

    def commit(self, client: Client) -> Step:
        return self._commit(client, client.member_id, client.instance_id, client.generation)

    def odd_commit(self, client: Client) -> Step:
        generation = self._chance.choice((self._generation(client), client.generation - 1, -1))
        return self._commit(client, *self._someone(client), generation)

    def ask_offsets(self, client: Client) -> Step:
        member_id, _ = self._someone(client)
        epoch = self._generation(client)
        if not member_id:
            return steps.fetch(self._line(client), {"t": [0, 1, 2]}, v=self._version(10, oldest=1))
        version = self._version(10, oldest=9)
        return steps.fetch(self._line(client), {"t": [0, 1, 2]}, v=version, member_id=member_id, member_epoch=epoch)

    def evict(self, client: Client) -> Step:
        """LeaveGroup of one or two members, by member id or instance id."""
        leaving = [self._someone(client) for _ in range(self._chance.choice((1, 1, 2)))]
        pairs = [(member_id, instance_id) if instance_id else member_id for member_id, instance_id in leaving]
        return steps.leave(self._line(client), *pairs)

    def watch(self, client: Client) -> Step:
        line = self._line(client)
        looks = (
            consumer_steps.describe_consumers(line, v=self._version(1)),
            consumer_steps.describe_consumers(line, v=self._version(1)),
            consumer_steps.list_groups(line),
            steps.describe(line, v=self._version(6)),
            steps.delete(line),
            steps.delete_offsets(line, {"t": [0, 1], "u": [0]}),
        )
        return self._chance.choice(looks)

    odd_moves: Moves = (
        *[odd_heartbeat] * 5,
        *[subscribe] * 2,
        enter_again,
        odd_enter,
        odd_enter,
        depart,
        depart,
        odd_depart,
        odd_commit,
        odd_commit,
        ask_offsets,
        evict,
        watch,
        watch,
    )


class ConsumerSessions(Consumers):
    """Members whose sessions and rebalance timeouts end: the waits are much longer or much shorter than both."""

    def __init__(self, seed: int, run: Play) -> None:
        super().__init__(seed, run)
        self._waits_left = [1000, 12_000, 12_000]

    def wait(self, client: Client) -> Step:
        if not self._waits_left:
            return self.watch(client)
        ms = self._chance.choice(self._waits_left)
        self._waits_left.remove(ms)
        return steps.wait(ms)

    odd_moves: Moves = (*Consumers.odd_moves, wait, wait, wait)
