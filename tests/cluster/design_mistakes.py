"""The ten mistakes that were made while the protocol was designed, planted into the code one at a time."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import pytest

from callboard.runtime.cluster.checkpoints import Checkpoints
from callboard.runtime.cluster.handover import Handover
from callboard.runtime.cluster.held_partitions import HeldPartitions
from callboard.runtime.cluster.keys import round_key
from callboard.runtime.cluster.manifest import newest_manifest
from callboard.runtime.cluster.register import Register
from callboard.runtime.cluster.session import Phase, Session
from callboard.runtime.cluster.store import settle
from callboard.runtime.cluster.wal import Fenced, Round, WalWriter

from .cluster_mutations import (
    Plant,
    leaver_does_not_seal,
    own_tail_is_read,
    register_changed_by_two_tasks,
    seal_ignores_the_floor,
)
from .simulated_node import Commit, SimulatedNode


def floor_ignores_partitions_given_away(patch: pytest.MonkeyPatch) -> None:
    """Rounds are deleted that a partition still needs while it is closed."""
    close, needed_from = Handover.close, HeldPartitions.needed_from

    async def close_and_forget(self: Handover, partitions: Collection[int]) -> None:
        vars(self._log.held)["closing"] = set(partitions)
        await close(self, partitions)

    def needed_by_others(self: HeldPartitions, next_round: int) -> int:
        others = HeldPartitions()
        closing = vars(self).get("closing", ())
        others._held = {partition: held for partition, held in self._held.items() if partition not in closing}
        return needed_from(others, next_round)

    patch.setattr(Handover, "close", close_and_forget)
    patch.setattr(HeldPartitions, "needed_from", needed_by_others)


def manifest_is_read_again_before_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """So a checkpoint follows the manifest of another owner."""
    checkpoint = Checkpoints._checkpoint

    async def checkpoint_newest(self: Checkpoints, partition: int) -> None:
        self._held[partition].manifest = await newest_manifest(self._store, partition)
        await checkpoint(self, partition)

    patch.setattr(Checkpoints, "_checkpoint", checkpoint_newest)


def round_in_flight_counts_as_stored(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint and a floor name the number that follows the round in flight."""

    async def append(self: WalWriter, content: bytes, token: bytes) -> None:
        number, self.next_number = self.next_number, self.next_number + 1
        data = Round(False, token, self.last_token, content).encode()
        if await settle(self._store, round_key(self._session, number), data) != data:
            raise Fenced(f"the WAL of {self._session} is sealed")
        self.last_token = token

    patch.setattr(WalWriter, "append", append)


def closed_partition_is_kept(patch: pytest.MonkeyPatch) -> None:
    """A partition was closed for a node that has gone meanwhile: it keeps its owner, and is not opened again."""
    give, given = Handover._give_at_once, Register.given

    async def give_to_others_only(self: Handover, partitions: Collection[int]) -> None:
        def given_to_others(register: Register, owners: Mapping[int, str]) -> Register:
            moved = {number: owner for number, owner in owners.items() if owner != self._log.session}
            return given(register, moved)

        patch.setattr(Register, "given", given_to_others)
        try:
            await give(self, partitions)
        finally:
            patch.setattr(Register, "given", given)

    patch.setattr(Handover, "_give_at_once", give_to_others_only)


def writer_dies_alone(patch: pytest.MonkeyPatch) -> None:
    """After an error in the writer the session goes on: it has its lease, and nothing can be committed."""
    write = SimulatedNode._write_round

    async def write_some(self: SimulatedNode, commits: list[Commit]) -> None:
        rounds = vars(self).setdefault("rounds", 0)
        vars(self)["rounds"] = rounds + 1
        if rounds < 60:
            await write(self, commits)

    patch.setattr(SimulatedNode, "_write_round", write_some)


def watching_waits_for_loads(patch: pytest.MonkeyPatch) -> None:
    """A node that loads partitions does not look whether the others live."""
    look = Session._look

    async def look_when_loaded(self: Session) -> None:
        node: Any = self._listener
        while any(partition not in node.values for partition in self._owned) and self.phase == Phase.ACTIVE:
            await self._environment.sleep(0.05)
        await look(self)

    patch.setattr(Session, "_look", look_when_loaded)


DESIGN_MISTAKES: Mapping[str, Plant] = {
    plant.__name__.replace("_", " "): plant
    for plant in (
        seal_ignores_the_floor,
        floor_ignores_partitions_given_away,
        manifest_is_read_again_before_the_checkpoint,
        register_changed_by_two_tasks,
        round_in_flight_counts_as_stored,
        leaver_does_not_seal,
        own_tail_is_read,
        closed_partition_is_kept,
        writer_dies_alone,
        watching_waits_for_loads,
    )
}
