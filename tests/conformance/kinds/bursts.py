"""Clients that do not wait for responses, and clients that are members of two groups on the same connections."""

from __future__ import annotations

from random import Random
from typing import Any

from .. import steps
from ..playing import Play
from ..random_scripts import Client, Moves
from ..script import MORE, Step
from .steady import Steady

BURST = 0.25
BURST_MAX = 6
GROUPS = ("$group", "$group-2")


class Bursts(Steady):
    """Some steps send several requests in one write, on one connection."""

    def __init__(self, seed: int, run: Play) -> None:
        super().__init__(seed, run)
        self._remaining = 0  # requests of the burst
        self._client = self._clients[0]
        self._connection = ""

    def next_step(self) -> Step | None:
        if not self._remaining and self._chance.random() < BURST:
            self._remaining = self._chance.randint(2, BURST_MAX)
            self._client = self._chance.choice(self._clients)
            self._connection = self._line(self._client)
        if not self._remaining:
            return super().next_step()
        self._remaining -= 1
        step = self._note(self._move_of(self._client))
        step[0] = self._connection
        if self._remaining:
            step.append(MORE)
        return step

    def _move_of(self, client: Client) -> Step:
        """Return the next request of a correct client, or any other."""
        if self._chance.random() < 0.4:
            moves = (self.odd_join, self.odd_sync, self.odd_beat, self.odd_commit, self.leave, self.look)
            return self._chance.choice(moves)(client)
        if client.needs != "an answer":
            return self._good_move(client)
        generation = client.generation + self._chance.choice((0, 1))
        move = self._chance.choice((self._sync, self._beat, self._commit))
        return move(client, client.member_id, client.instance_id, generation)


class TwoGroups(Steady):
    """Two clients, each a member of two groups: a pending request to one group delays later ones to the other."""

    ending = (
        *(steps.describe("Z", group) for group in GROUPS),
        *(steps.fetch("Z", group_id=group) for group in GROUPS),
    )

    def _draw_clients(self, random: Random) -> list[Client]:
        clients = [Client(name, random.choice((None, name.lower())), random) for name in "AABB"]
        self._members = {(client.name, GROUPS[number % 2]): client for number, client in enumerate(clients)}
        return clients

    def _asker(self, name: str, values: Any) -> Client | None:
        return self._members.get((name, values.get("group_id", "")))

    def _good_move(self, client: Client) -> Step:
        return self._in_its_group(super()._good_move(client), client)

    def odd_move(self, client: Client) -> Step:
        return self._in_its_group(self._chance.choice(Steady.odd_moves)(self, client), client)

    def _in_its_group(self, step: Step, client: Client) -> Step:
        group = next(group for (_, group), member in self._members.items() if member is client)
        return with_group(step, group)

    odd_moves: Moves = (odd_move,)


def with_group(step: Step, group: str) -> Step:
    """Return the step with another group id."""
    return [*step[:3], *(_with_group(values, group) for values in step[3:])]


def _with_group(value: Any, group: str) -> Any:
    """Return a request's values with another group id."""
    if isinstance(value, dict):
        return {name: _with_group(item, group) for name, item in value.items()}
    if isinstance(value, list):
        return [_with_group(item, group) for item in value]
    return group if value == GROUPS[0] else value
