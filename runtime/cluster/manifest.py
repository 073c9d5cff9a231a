"""A manifest: what a partition consists of. Each change is a new version; whoever creates it has made the change."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, NamedTuple

from ...actors.callboard_error import CallboardError
from .documents import NO_FIELDS, decode_document, encode_document, reading
from .keys import MANIFESTS, manifest_key, manifest_prefix, number_of, owner_of
from .store import Store, settle

MERGED_BYTES_MAX = 256 * 1024
"""A last segment up to this size is replaced by one that has the new batches, too. So partitions have few segments."""

FEW = 2
"""Of fewer partitions each is listed by itself. The list of all manifests may be long."""


class Segment(NamedTuple):
    """Batches of a partition in a value of the store. ``base`` and ``end``: the first offset, and the one after it.

    ``is_compacted``: a compaction wrote it. ``horizon_ms``: when the first of its tombstones or markers may be removed,
    in ms since 1970; None if it has none that a compaction has marked.
    """

    key: str
    base: int
    end: int
    size: int
    crc: int
    is_compacted: bool = False
    horizon_ms: int | None = None

    @property
    def may_grow(self) -> bool:
        """While it is the last segment, a checkpoint may replace it by a longer one."""
        return not self.is_compacted and self.size <= MERGED_BYTES_MAX


class Tail(NamedTuple):
    """The partition goes on in the WAL of a session, from this round on."""

    session: str
    start: int


class Manifest(NamedTuple):
    """``epoch``: that of the owner who wrote it, or copied by a compaction. No ``tail``: the segments are complete.

    ``unknown``: fields of a newer version.
    """

    partition: int
    version: int
    token: str
    epoch: int
    segments: tuple[Segment, ...] = ()
    tail: Tail | None = None
    unknown: Mapping[str, Any] = NO_FIELDS

    @property
    def end(self) -> int:
        """The offset after the last segment."""
        return self.segments[-1].end if self.segments else 0

    def encode(self) -> bytes:
        fields = {"token": self.token, "epoch": self.epoch, "segments": self.segments, "tail": self.tail}
        return encode_document(fields, self.unknown)


def decode_manifest(partition: int, version: int, data: bytes) -> Manifest:
    """Raises Unreadable."""
    with reading(manifest_key(partition, version)):
        fields = decode_document(f"the manifest of partition {partition}", data)
        stored_tail = fields.pop("tail")
        tail = Tail(*stored_tail) if stored_tail else None
        segments = tuple(Segment(*segment) for segment in fields.pop("segments"))
        return Manifest(partition, version, fields.pop("token"), fields.pop("epoch"), segments, tail, fields)


class ManifestMissing(CallboardError):
    """A partition has no manifest, although one was created with the cluster: its data was removed."""

    def __init__(self, partition: int) -> None:
        super().__init__(f"partition {partition} has no manifest in the store; restore the store from a backup")


async def newest_manifest(store: Store, partition: int) -> Manifest:
    """Raises ManifestMissing."""
    while True:
        keys = await store.list(manifest_prefix(partition))
        if not keys:
            raise ManifestMissing(partition)
        [data] = await store.get([keys[-1]])
        if data is not None:  # else its owner has deleted it meanwhile, because there are newer ones
            return decode_manifest(partition, number_of(keys[-1]), data)


async def newest_manifests(store: Store, partitions: Collection[int]) -> dict[int, Manifest]:
    """Those of many partitions, in two operations. Raises ManifestMissing."""
    if len(partitions) < FEW:
        return {partition: await newest_manifest(store, partition) for partition in partitions}
    newest = {int(owner_of(key)): key for key in await store.list(MANIFESTS)}  # in the order of their versions
    for partition in partitions:
        if partition not in newest:
            raise ManifestMissing(partition)
    values = await store.get([newest[partition] for partition in partitions])
    manifests = {}
    for partition, data in zip(partitions, values, strict=True):
        if data is None:  # its owner has deleted it meanwhile, because there are newer ones
            manifests[partition] = await newest_manifest(store, partition)
        else:
            manifests[partition] = decode_manifest(partition, number_of(newest[partition]), data)
    return manifests


async def create_manifest(store: Store, manifest: Manifest) -> bool:
    """Whether the manifest is its version now. False: somebody else has created this version."""
    data = manifest.encode()
    return await settle(store, manifest_key(manifest.partition, manifest.version), data) == data
