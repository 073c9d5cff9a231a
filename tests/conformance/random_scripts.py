"""Writes random scripts while they are played: correct and incorrect requests of the clients of one group.

The next step may depend on the responses so far, so that groups complete their rebalances: a member usually rejoins
after REBALANCE_IN_PROGRESS, and a leader usually sends assignments. The result is a plain script that can be replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Any

from . import steps
from .playing import Play, StepResponse
from .script import Script, Step, client_of

STEPS = (15, 45)
WAITS_MAX = 2
GOOD_MOVES = 0.6
BEHIND = 0.15  # share of requests sent on a connection that has a pending request
LINES_MAX = 3  # connections of one client

# The differences are large enough that the same timeouts expire in the same wait at every speed.
SESSION_SHORT_MS = 4000
REBALANCE_SHORT_MS = 9000
WAITS_MS = (2000, 6000, 12_000)
LONG_MS = 100_000

WORKER = [{"name": "range", "metadata": "$bytes worker"}]
OFFERS = (steps.RANGE, steps.BOTH, steps.BOTH, steps.BOTH_STICKY_FIRST)
ODD_OFFERS = (*OFFERS, steps.OTHER_TOPIC, steps.OTHER_TOPIC, steps.STICKY)


class Client:
    """The state of one client, taken from the responses that it received."""

    def __init__(self, name: str, instance_id: str | None, random: Random) -> None:
        self.name = name
        self.instance_id = instance_id
        self.ids: list[str] = []
        self.member_id = ""
        self.generation = 0
        self.protocol = "range"
        self.members: list[str] = []  # to be assigned by this client if it leads
        self.needs = "join"
        self.session_ms = random.choice((LONG_MS, LONG_MS, LONG_MS, SESSION_SHORT_MS))
        self.rebalance_ms = random.choice((LONG_MS, LONG_MS, REBALANCE_SHORT_MS))
        self.offers = random.choice(OFFERS)

    def hear(self, api: str, response: Any) -> None:
        error = response.get("error_code")
        if api == "join_group":
            self._hear_join(error, response)
        elif error == "REBALANCE_IN_PROGRESS":
            self.needs = "join"
        elif api in ("sync_group", "heartbeat") and error in ("UNKNOWN_MEMBER_ID", "FENCED_INSTANCE_ID"):
            self.member_id, self.needs = "", "join"
        elif api == "sync_group":
            self._hear_sync(error)

    def _hear_sync(self, error: str) -> None:
        if error == "NONE":
            self.needs = "nothing"
        elif self.needs == "an answer":
            self.needs = "join"

    def _hear_join(self, error: str, response: Any) -> None:
        if error == "NONE":
            self.generation, self.protocol = response["generation_id"], response["protocol_name"]
            self.members = [member["member_id"] for member in response["members"]]
        if error in ("NONE", "MEMBER_ID_REQUIRED"):
            self.member_id = response["member_id"]
            if self.member_id not in self.ids:
                self.ids.append(self.member_id)
            self.needs = "sync" if error == "NONE" else "join"
        else:
            self.member_id, self.needs = "", "join"


Moves = Sequence[Callable[[Any, Client], Step]]
"""Methods of an author. A method that is listed twice is drawn twice as often."""


class Author:
    """Writes one script, step by step."""

    def __init__(self, seed: int, run: Play) -> None:
        self.script: list[Step] = []
        self._chance = random = Random(seed)
        self._run = run
        self._is_connect = random.random() < 0.15
        self._clients = self._draw_clients(random)
        self._count = random.randint(*STEPS)
        self._waits = WAITS_MAX

    def _draw_clients(self, random: Random) -> list[Client]:
        instance_ids = [random.choice((None, None, name.lower())) for name in "ABCD"]
        return [
            Client(name, instance_id, random)
            for name, instance_id in zip("ABCD"[: random.randint(2, 4)], instance_ids, strict=False)
        ]

    def next_step(self) -> Step | None:
        """Return the next step; None at the end of the script."""
        remaining = self._count - len(self.script)
        if remaining <= 0:
            ending = self.ending
            return self._note(ending[-remaining]) if -remaining < len(ending) else None
        if self._chance.random() < GOOD_MOVES:
            idle = [client for client in self._clients if client.needs != "an answer"]
            return self._note(self._good_move(self._chance.choice(idle or self._clients)))
        return self._note(self._chance.choice(self.odd_moves)(self, self._chance.choice(self._clients)))

    def hear(self, responses: list[StepResponse]) -> None:
        for number, response in responses:
            if isinstance(number, int):
                line, api, _, values, *_ = self.script[number]
                self._hear_one(client_of(line), api, values, response)

    def _hear_one(self, name: str, api: str, values: Any, response: Any) -> None:
        client = self._asker(name, values)
        if client is not None:
            client.hear(api, response)

    def _asker(self, name: str, _values: Any) -> Client | None:
        return next((client for client in self._clients if client.name == name), None)

    def _note(self, step: Step) -> Step:
        self.script.append(step)
        return step

    # Connections and ids ---------------------------------------------------------------------------------------------

    def _line(self, client: Client) -> str:
        """Return a connection without a pending request; with probability BEHIND any connection."""
        lines = [client.name, *(f"{client.name}{number}" for number in range(2, LINES_MAX + 1))]
        if self._chance.random() < BEHIND:
            return self._chance.choice(lines)
        return next((line for line in lines if not self._run.is_busy(line)), lines[-1])

    def _someone(self, client: Client) -> tuple[str, str | None]:
        """Return a member id and an instance id: current, old or unknown, of this client or of another one."""
        other = self._chance.choice(self._clients)
        ids = [client.member_id, client.member_id, other.member_id, *other.ids, "nobody", ""]
        instance_ids = [client.instance_id, client.instance_id, other.instance_id, None, "nowhere"]
        return self._chance.choice(ids), self._chance.choice(instance_ids)

    def _generation(self, client: Client) -> int:
        return client.generation + self._chance.choice((0, 0, 0, 0, -1, 1))

    def _version(self, newest: int, oldest: int = 0) -> int:
        return self._chance.choice((newest, self._chance.randint(oldest, newest)))

    # Moves of a correct client ---------------------------------------------------------------------------------------

    def _good_move(self, client: Client) -> Step:
        if client.needs == "join":
            client.needs = "an answer"
            return self._join(client, client.member_id, client.offers)
        if client.needs == "sync":
            client.needs = "an answer"
            return self._sync(client, client.member_id, client.instance_id, client.generation)
        return self._chance.choice((self._beat, self._beat, self._commit))(
            client, client.member_id, client.instance_id, client.generation
        )

    def _join(self, client: Client, member_id: str, offers: Any, **changes: Any) -> Step:
        defaults = {
            "group_instance_id": client.instance_id,
            "session_timeout": client.session_ms,
            "rebalance_timeout": client.rebalance_ms,
            **self._kind(offers),
        }
        version = self._version(9, oldest=5 if client.instance_id else 0)
        return steps.join(self._line(client), member_id, version, **{**defaults, **changes})

    def _kind(self, offers: Any) -> dict[str, Any]:
        """Return the protocol fields of the join of a consumer or of a Connect worker."""
        if self._is_connect:
            return {"protocol_type": "connect", "protocols": WORKER}
        return {"protocol_type": "consumer", "protocols": offers}

    def _sync(self, client: Client, member_id: str, instance_id: str | None, generation: int) -> Step:
        assignments = {member: f"{member[1:]} in {generation}" for member in client.members}
        version = self._version(5, oldest=3 if instance_id else 0)
        protocol_type = "connect" if self._is_connect else "consumer"
        return steps.sync(
            self._line(client),
            member_id,
            generation,
            assignments,
            version,
            group_instance_id=instance_id,
            protocol_type=protocol_type,
            protocol_name=client.protocol or "range",
        )

    def _beat(self, client: Client, member_id: str, instance_id: str | None, generation: int) -> Step:
        return steps.heartbeat(
            self._line(client), member_id, generation, instance_id, self._version(4, oldest=3 if instance_id else 0)
        )

    def _commit(self, client: Client, member_id: str, instance_id: str | None, generation: int) -> Step:
        topic, index = self._chance.choice((("t", 0), ("t", 2), ("u", 0)))
        committed = steps.offsets(
            topic, steps.part(index, self._chance.randint(0, 99), "", self._chance.choice((-1, 3)))
        )
        version = self._version(10, oldest=7 if instance_id else 2)
        return steps.commit(
            self._line(client), member_id, generation, committed, v=version, group_instance_id=instance_id
        )

    # Odd moves -------------------------------------------------------------------------------------------------------

    def odd_join(self, client: Client) -> Step:
        """A repeated join, with another subscription or without the member id."""
        member_id = self._chance.choice((client.member_id, client.member_id, ""))
        return self._join(client, member_id, self._chance.choice(ODD_OFFERS))

    def wrong_join(self, client: Client) -> Step:
        """A join with the id of another member, or with protocols that the group does not support."""
        changes: dict[str, Any] = self._chance.choice(
            ({"protocols": steps.ALIEN}, {"protocols": []}, {"protocol_type": "other"}, {"session_timeout": 1}, {})
        )
        member_id, _ = self._someone(client)
        is_pending = (
            member_id and client.instance_id
        )  # a pending id with an instance id: a bug in Kafka, and no client sends it
        return self._join(client, "nobody" if is_pending else member_id, client.offers, **changes)

    def odd_sync(self, client: Client) -> Step:
        step = self._sync(client, *self._someone(client), self._generation(client))
        change = self._chance.choice(("", "", "protocol_name", "protocol_type"))
        if change:
            step[3][change] = self._chance.choice((None, "wrong"))
        return step

    def odd_beat(self, client: Client) -> Step:
        return self._beat(client, *self._someone(client), self._generation(client))

    def odd_commit(self, client: Client) -> Step:
        generation = self._chance.choice((self._generation(client), -1))
        return self._commit(client, *self._someone(client), generation)

    def leave(self, client: Client) -> Step:
        """One or two members leave, but none with a pending sync, because Kafka never answers that sync."""
        leaving = [self._someone(client) for _ in range(self._chance.choice((1, 1, 2)))]
        if self._chance.random() < 0.5:
            leaving = [(client.member_id, client.instance_id)]
        if any(self._is_syncing(member_id, instance_id) for member_id, instance_id in leaving):
            return self.look(client)
        pairs = [(member_id, instance_id) if instance_id else member_id for member_id, instance_id in leaving]
        version = 5 if any(instance_id for _, instance_id in leaving) else self._version(5)
        return steps.leave(self._line(client), *pairs, v=version)

    def _is_syncing(self, member_id: str, instance_id: str | None) -> bool:
        pending = [
            request.values
            for requests in self._run.outstanding.values()
            for request in requests
            if request.api == "sync_group"
        ]
        return any(
            values["member_id"] == member_id or (instance_id and values["group_instance_id"] == instance_id)
            for values in pending
        )

    def look(self, client: Client) -> Step:
        line = self._line(client)
        looks: tuple[Callable[[], Step], ...] = (
            lambda: steps.describe(line, v=self._version(6)),
            lambda: steps.fetch(line, v=self._version(10, oldest=2)),
            lambda: steps.fetch(line, {"t": [0, 1, 2], "u": [0]}, v=self._version(10, oldest=1)),
            lambda: [line, "list_groups", self._version(5, oldest=3), {"states_filter": [], "types_filter": []}],
            lambda: steps.delete(line, v=self._version(2)),
            lambda: steps.delete_offsets(line, {"t": [0, 1], "u": [0]}),
        )
        return self._chance.choice(looks)()

    def wait(self, client: Client) -> Step:
        if not self._waits:
            return self.look(client)
        self._waits -= 1
        return steps.wait(self._chance.choice(WAITS_MS))

    def disconnect(self, client: Client) -> Step:
        """Close a connection with one pending request. With more, the network decides how many of them Kafka reads."""
        lines = [line for line, requests in self._run.outstanding.items() if len(requests) == 1]
        return steps.disconnect(self._chance.choice(lines)) if lines else self.look(client)

    odd_moves: Moves = (
        odd_join,
        odd_join,
        wrong_join,
        odd_sync,
        odd_sync,
        odd_beat,
        odd_commit,
        leave,
        leave,
        look,
        look,
        wait,
        disconnect,
    )
    ending: Sequence[Step] = (steps.describe("Z"), steps.fetch("Z"))


async def write(seed: int, play: Play, author_type: type[Author] = Author) -> tuple[Script, list[list[StepResponse]]]:
    """Write and play the script of a seed; return its steps and the responses after each step."""
    author, responses = author_type(seed, play), list[list[StepResponse]]()
    while (step := author.next_step()) is not None:
        responses.append(await play.take(step))
        author.hear(responses[-1])
    return author.script, responses
