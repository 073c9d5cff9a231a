"""Transactions that commit offsets of a group, mixed with the members' commits, fetches, deletions and rebalances.

Kafka writes markers after the response, so a script waits after the end of each transaction. The members have long
timeouts, because the sum of these waits is close to the short ones.
"""

from __future__ import annotations

from random import Random
from typing import Any

from .. import steps
from ..playing import Play
from ..random_scripts import LONG_MS, Client, Moves
from ..scenarios.transactions import MARKERS_MS, TIMEOUT_MS, add, end, init, txn
from ..script import Step
from .offsets import Committers

ENDS_MAX = 5
PRODUCERS = {"P": "$group-tx", "Q": "$group-tx2"}
FIRST_OF_THE_SECOND_KIND = {"init_producer_id": 0, "add_offsets_to_txn": 4, "txn_offset_commit": 5, "end_txn": 5}
"""Versions from which a producer's transactions bump its epoch each time (KIP-890)."""
UNKNOWN_PRODUCER = 987_654_321
LOST = ("INVALID_PRODUCER_EPOCH", "PRODUCER_FENCED", "INVALID_PRODUCER_ID_MAPPING")
GROUPS = ("$group", "$group", "$group", "$group-2")


class Producer:
    """The state of one producer, taken from the responses that it received."""

    def __init__(self, name: str, random: Random) -> None:
        self.name = name
        self.tx = PRODUCERS[name]
        self.is_second_kind = random.random() < 0.4
        self.forget()

    def forget(self) -> None:
        self.producer_id: str | int = -1
        self.epoch = -1
        self.begin()

    def begin(self) -> None:
        self.groups: list[str] = []  # in the transaction
        self.has_written = False

    def hear(self, api: str, values: Any, response: Any) -> None:
        error = response.get("error_code")
        if error == "NONE" and response.get("producer_id", -1) != -1:
            self.producer_id, self.epoch = response["producer_id"], response["producer_epoch"]
        is_own = values["producer_id"] == self.producer_id and values["producer_epoch"] == self.epoch
        if error in LOST and is_own:
            self.forget()
        elif api in ("init_producer_id", "end_txn"):
            self.begin()
        elif api == "add_offsets_to_txn" and error == "NONE":
            self.groups.append(values["group_id"])


class Producers(Committers):
    """Two producers and the members of a group."""

    timeout_ms = TIMEOUT_MS

    def __init__(self, seed: int, run: Play) -> None:
        super().__init__(seed, run)
        self._producers = {name: Producer(name, self._chance) for name in PRODUCERS}
        self._ends = ENDS_MAX
        self._must_wait = False

    def _draw_clients(self, random: Random) -> list[Client]:
        clients = super()._draw_clients(random)[:2]
        for client in clients:
            client.session_ms = client.rebalance_ms = LONG_MS
        return clients

    def next_step(self) -> Step | None:
        if self._must_wait:
            self._must_wait = False
            return self._note(steps.wait(MARKERS_MS))
        if len(self.script) < self._count and self._chance.random() < 0.5:
            return self._note(self.produce())
        return super().next_step()

    def _hear_one(self, name: str, api: str, values: Any, response: Any) -> None:
        super()._hear_one(name, api, values, response)
        producer = self._producers.get(name)
        if producer is not None:
            producer.hear(api, values, response)

    # Moves of producers ----------------------------------------------------------------------------------------------

    def produce(self) -> Step:
        producer = self._chance.choice(list(self._producers.values()))
        if producer.producer_id == -1:
            return self._init(producer)
        if self._chance.random() < 0.2:
            moves = (self._init_again, self._add, self._add, self._commit_in, self._end)
            return self._chance.choice(moves)(producer, True)
        if not producer.groups and not producer.is_second_kind:
            return self._add(producer)
        if producer.has_written and self._chance.random() < 0.4:
            return self._end(producer)
        return self._commit_in(producer)

    def _version_of(self, producer: Producer, api: str, newest: int) -> int:
        first = FIRST_OF_THE_SECOND_KIND[api]
        return newest if producer.is_second_kind and first else self._version(first - 1 if first else newest)

    def _producer_fields(self, producer: Producer, is_odd: bool) -> dict[str, Any]:
        """Return a producer id and epoch; if ``is_odd``, mostly wrong, outdated or of the other producer."""
        fields: dict[str, Any] = {"producer": producer.producer_id, "epoch": producer.epoch}
        if is_odd and self._chance.random() < 0.7:
            other = self._chance.choice(list(self._producers.values()))
            fields = self._chance.choice(
                (
                    {**fields, "epoch": producer.epoch + self._chance.choice((-1, 1))},
                    {"producer": other.producer_id, "epoch": other.epoch},
                    {**fields, "producer": UNKNOWN_PRODUCER},
                )
            )
        return fields

    def _init(self, producer: Producer, /, **changes: Any) -> Step:
        self._must_wait = bool(producer.groups or producer.has_written)
        return init(producer.name, v=self._version(5), tx=producer.tx, timeout=self.timeout_ms, **changes)

    def _init_again(self, producer: Producer, is_odd: bool) -> Step:
        if self._ends <= 0:
            return self._add(producer, is_odd)
        self._ends -= 1
        self._must_wait = True
        changes = self._producer_fields(producer, is_odd) if self._chance.random() < 0.5 else {}
        step = self._init(producer, **changes)
        step[2] = max(step[2], 3) if changes else step[2]
        self._must_wait = True
        return step

    def _add(self, producer: Producer, is_odd: bool = False) -> Step:
        version = self._version_of(producer, "add_offsets_to_txn", 4)
        group = self._chance.choice(GROUPS)
        return add(producer.name, v=version, tx=producer.tx, group=group, **self._producer_fields(producer, is_odd))

    def _commit_in(self, producer: Producer, is_odd: bool = False) -> Step:
        version = self._version_of(producer, "txn_offset_commit", 5)
        group = self._chance.choice(producer.groups or GROUPS[-1:] if not is_odd else GROUPS)
        member_id, instance_id, generation = "", None, -1
        if version >= 3 and group == "$group" and self._chance.random() < 0.6:
            client = self._chance.choice(self._clients)
            member_id, instance_id, generation = client.member_id, client.instance_id, client.generation
            if is_odd or self._chance.random() < 0.3:
                (member_id, instance_id), generation = self._someone(client), self._generation(client)
        topics = [self._topic() for _ in range(self._chance.choice((1, 1, 2)))]
        producer.has_written = True
        return txn(
            producer.name,
            member_id,
            generation,
            *topics,
            v=version,
            transactional_id=producer.tx,
            group_id=group,
            group_instance_id=instance_id,
            **self._committing_producer_fields(producer, is_odd),
        )

    def _committing_producer_fields(self, producer: Producer, is_odd: bool) -> dict[str, Any]:
        """Never use the other producer's id: Kafka accepts it after that producer's commit (docs/conformance.md)."""
        fields = self._producer_fields(producer, is_odd)
        return (
            fields
            if fields["producer"] in (producer.producer_id, UNKNOWN_PRODUCER)
            else self._producer_fields(producer, False)
        )

    def _end(self, producer: Producer, is_odd: bool = False) -> Step:
        if self._ends <= 0:
            return self._commit_in(producer, is_odd)
        self._ends -= 1
        self._must_wait = True
        version = self._version_of(producer, "end_txn", 5)
        is_good = self._chance.random() < 0.6
        return end(producer.name, is_good, v=version, tx=producer.tx, **self._producer_fields(producer, is_odd))

    odd_moves: Moves = (
        *Committers.odd_moves,
        Committers.rich_fetch,
        Committers.rich_fetch,
        Committers.odd_commit,
        Committers.odd_join,
    )


class Abandoned(Producers):
    """Transactions that stay open until the coordinator aborts them: Kafka checks every ten seconds."""

    timeout_ms = 20_000
    waits_ms = (36_000,)

    def next_step(self) -> Step | None:
        """Wait in the second half of the script, when transactions may be open."""
        is_time = len(self.script) * 2 > self._count and not self._must_wait
        return self._note(self.wait(self._clients[0])) if is_time and self._waits_left else super().next_step()

    odd_moves: Moves = tuple(move for move in Producers.odd_moves if move is not Producers.wait)
