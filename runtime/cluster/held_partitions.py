"""The partitions that a session holds: their manifests, and the batches that no segment has yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from .manifest import Manifest


class HeldPartition:
    """``batches`` were stored in rounds from ``first_round`` on. ``manifest`` is the newest one this session knows."""

    __slots__ = ("batches", "epoch", "first_round", "manifest", "size")

    def __init__(self, manifest: Manifest) -> None:
        self.manifest = manifest
        self.epoch = manifest.epoch
        self.batches: list[bytes] = []
        self.first_round: int | None = None
        self.size = 0

    def add(self, number: int, batch: bytes) -> None:
        if self.first_round is None:
            self.first_round = number
        self.batches.append(batch)
        self.size += len(batch)

    def drop(self, count: int, next_round: int | None) -> None:
        """The first batches are in a segment that the manifest has. ``next_round``: where the others begin."""
        self.size -= sum(map(len, self.batches[:count]))
        del self.batches[:count]
        self.first_round = next_round if self.batches else None


class HeldPartitions:
    """By number. A partition is held from its load until its last manifest of this session."""

    def __init__(self) -> None:
        self._held: dict[int, HeldPartition] = {}

    def __contains__(self, partition: int) -> bool:
        return partition in self._held

    def __iter__(self) -> Iterator[int]:
        return iter(self._held)

    def __getitem__(self, partition: int) -> HeldPartition:
        return self._held[partition]

    def get(self, partition: int) -> HeldPartition | None:
        return self._held.get(partition)

    def hold(self, manifest: Manifest) -> None:
        self._held[manifest.partition] = HeldPartition(manifest)

    def release(self, partition: int) -> None:
        del self._held[partition]

    def add_round(self, number: int, batches: Iterable[tuple[int, bytes]]) -> None:
        """Call it when the round is stored, before anybody learns of it."""
        for partition, batch in batches:
            self._held[partition].add(number, batch)

    def with_batches(self) -> Collection[int]:
        return [partition for partition, held in self._held.items() if held.batches]

    @property
    def size(self) -> int:
        """The bytes of all batches that no segment has."""
        return sum(held.size for held in self._held.values())

    def needed_from(self, next_round: int) -> int:
        """No partition needs a round below this number."""
        return min(
            (held.first_round for held in self._held.values() if held.first_round is not None), default=next_round
        )
