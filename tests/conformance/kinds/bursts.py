"""Clients that do not wait for answers, and clients that are members of two groups by the same connections."""

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


class Hurried(Steady):
    """Now and then a client writes several requests at once, on one connection."""

    def __init__(self, seed: int, run: Play) -> None:
        super().__init__(seed, run)
        self._left = 0  # of the burst
        self._who = self._clients[0]
        self._where = ""

    def next_step(self) -> Step | None:
        if not self._left and self._chance.random() < BURST:
            self._left = self._chance.randint(2, BURST_MAX)
            self._who = self._chance.choice(self._clients)
            self._where = self._line(self._who)
        if not self._left:
            return super().next_step()
        self._left -= 1
        step = self._note(self._move_of(self._who))
        step[0] = self._where
        if self._left:
            step.append(MORE)
        return step

    def _move_of(self, client: Client) -> Step:
        """What it would do next if all went well, or anything else."""
        if self._chance.random() < 0.4:
            moves = (self.odd_join, self.odd_sync, self.odd_beat, self.odd_commit, self.leave, self.look)
            return self._chance.choice(moves)(client)
        if client.needs != "an answer":
            return self._good_move(client)
        generation = client.generation + self._chance.choice((0, 1))
        move = self._chance.choice((self._sync, self._beat, self._commit))
        return move(client, client.member_id, client.seat, generation)


class Divided(Steady):
    """Two clients, each a member of two groups: what one group parks holds up the other's requests behind it."""

    ending = (
        *(steps.describe("Z", group) for group in GROUPS),
        *(steps.fetch("Z", group_id=group) for group in GROUPS),
    )

    def _draw_clients(self, chance: Random) -> list[Client]:
        clients = [Client(name, chance.choice((None, name.lower())), chance) for name in "AABB"]
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
    """A step that means another group."""
    return [*step[:3], *(_moved(values, group) for values in step[3:])]


def _moved(value: Any, group: str) -> Any:
    """A request's values with another group in them."""
    if isinstance(value, dict):
        return {name: _moved(item, group) for name, item in value.items()}
    if isinstance(value, list):
        return [_moved(item, group) for item in value]
    return group if value == GROUPS[0] else value
