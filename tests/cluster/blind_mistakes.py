"""Six mistakes, planted by somebody who had read the protocol's code and not the checkers of the simulation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from callboard.runtime.cluster import burial, garbage, wal
from callboard.runtime.cluster.checkpoints import Checkpoints
from callboard.runtime.cluster.garbage import GarbageCollector
from callboard.runtime.cluster.keys import number_of, round_key, tombstone_key, wal_prefix
from callboard.runtime.cluster.manifest import Tail
from callboard.runtime.cluster.register import Register
from callboard.runtime.cluster.session import Session
from callboard.runtime.cluster.store import Store, settle

from .cluster_mutations import Plant, lease_counts_from_the_answer


def rounds_counted_after_the_checkpoint(patch: pytest.MonkeyPatch) -> None:
    """A checkpoint covers the rounds before its manifest was sent; here those before it was answered."""

    async def checkpoint(self: Checkpoints, partition: int) -> None:
        held = self._held[partition]
        count = len(held.batches)
        tail = Tail(self._session, self._wal.next_number)
        held.manifest = await self._replace(held.manifest, held.batches[:count], tail)
        held.drop(count, self._wal.next_number)

    patch.setattr(Checkpoints, "_checkpoint", checkpoint)


def new_epoch_of_an_owned_partition_ignored(patch: pytest.MonkeyPatch) -> None:
    """A partition that a node gets back before it has seen another owner is not loaded again."""
    apply = Session._apply

    def apply_without_epochs(self: Session, register: Register) -> None:
        owned = register.owned(self.name)
        self._owned = {partition: owned.get(partition, epoch) for partition, epoch in self._owned.items()}
        apply(self, register)

    patch.setattr(Session, "_apply", apply_without_epochs)


def seals_deleted_with_rounds(patch: pytest.MonkeyPatch) -> None:
    """Nothing of an ended session's WAL is left: a late create of a round finds its name free."""

    find = GarbageCollector._sealed_rounds

    async def find_all(self: GarbageCollector, name: str) -> Sequence[str] | None:
        keys = await find(self, name)
        return None if keys is None else await self._store.list(wal_prefix(name))

    patch.setattr(GarbageCollector, "_sealed_rounds", find_all)


def segments_of_the_next_version_deleted(patch: pytest.MonkeyPatch) -> None:
    """Segments that no manifest names are garbage, although their manifest may be on its way."""
    patch.setattr(garbage, "number_of", lambda key: 0 if key.startswith("seg/") else number_of(key))


def floor_read_before_the_tombstone(patch: pytest.MonkeyPatch) -> None:
    """Who seals a WAL decides where before the session can know that it was declared dead."""

    async def declare_dead(store: Store, environment: Any, name: str) -> int:
        floor = await wal.read_floor(store, name)
        await settle(store, tombstone_key(name), environment.token())
        number = max([floor, *map(number_of, await store.list(wal_prefix(name)))])
        data = wal.Round(True, environment.token(), wal.NO_TOKEN, b"").encode()
        while True:
            winner = await settle(store, round_key(name, number), data)
            if winner == data or wal.decode_round(winner).is_seal:
                return number
            number += 1

    patch.setattr(burial, "declare_dead", declare_dead)


BLIND_MISTAKES: Mapping[str, Plant] = {
    plant.__name__.replace("_", " "): plant
    for plant in (
        rounds_counted_after_the_checkpoint,
        new_epoch_of_an_owned_partition_ignored,
        seals_deleted_with_rounds,
        segments_of_the_next_version_deleted,
        floor_read_before_the_tombstone,
        lease_counts_from_the_answer,
    )
}
