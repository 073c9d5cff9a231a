"""Creates a cluster with content in an empty store. The register comes last: without it there is no cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ...actors.steps import run_steps
from ..log.partition_counts import PartitionCounts
from ..security.document import SecurityDocument
from ..settings.group_configs import AllOverrides
from .keys import IMPORTED_SETTINGS_KEY, MANIFESTS, REGISTER, SEGMENTS, SESSIONS, TOPICS, register_key, version_key
from .manifest import Manifest, create_manifest
from .register import empty_register
from .segments import write_segment
from .session_producer_ids import IDS_PER_SESSION
from .store import Store, settle
from .topic_leadership import OFFSETS_PER_EPOCH
from .topics_document import SharedTopic, TopicsDocument

SEGMENT_BYTES = 8 * 1024 * 1024
"""A segment ends with the batch that reaches this size. Values of a store are at most 16 MiB."""
CONCURRENT = 8

Token = Callable[[], bytes]


class NotEmpty(Exception):
    """The store has something already. The text is the first key."""


class ClusterContent(NamedTuple):
    """``batches``: yields those of a partition, in order. ``producer_id_max``: -1 if none was ever given out.

    ``settings``: what a single node had changed while it ran, the content of its file; nodes do not read it.
    ``groups``: the settings of groups, which were in it. ``security``: users, ACLs and quotas.
    """

    cluster_id: str
    counts: PartitionCounts
    session_timeout_ms: int
    batches: Callable[[int], Iterable[bytes]]
    topics: Mapping[str, SharedTopic]
    producer_id_max: int
    settings: bytes | None
    groups: AllOverrides = {}
    security: SecurityDocument | None = None


async def create_cluster(store: Store, content: ClusterContent, token: Token) -> None:
    """``store`` is patient. Raises NotEmpty, also if a node has created a cluster meanwhile."""
    for prefix in (REGISTER, SESSIONS, TOPICS, MANIFESTS, SEGMENTS):
        if keys := await store.list(prefix):
            raise NotEmpty(keys[0])
    limit = asyncio.Semaphore(CONCURRENT)

    async def create_partition(partition: int) -> None:
        async with limit:
            await _create_partition(store, partition, content.batches(partition), token)

    await asyncio.gather(*map(create_partition, range(sum(content.counts))))
    if content.settings is not None:
        await store.put(IMPORTED_SETTINGS_KEY, content.settings)
    document = TopicsDocument(0, token().hex(), content.topics, groups=content.groups, security=content.security)
    await _create(store, version_key(TOPICS, 0), run_steps(document.encode()))
    version = first_version(content.producer_id_max)
    register = empty_register(content.counts, token().hex(), content.cluster_id, content.session_timeout_ms)
    await _create(store, register_key(version), register.numbered(version, token().hex()).encode())


def first_version(producer_id_max: int) -> int:
    """The first version of the register. Producer ids follow from later ones, so none was given out before."""
    return producer_id_max // IDS_PER_SESSION + 1


def first_epoch_after(end_offset: int) -> int:
    """The epoch in which a topic was created, for its first leader to begin after an offset: see TopicLeadership."""
    return -(end_offset // OFFSETS_PER_EPOCH)


async def _create(store: Store, key: str, value: bytes) -> None:
    if await settle(store, key, value) != value:
        raise NotEmpty(key)


async def _create_partition(store: Store, partition: int, batches: Iterable[bytes], token: Token) -> None:
    segments = [await write_segment(store, partition, 0, part, token()) for part in _segments(batches)]
    manifest = Manifest(partition, 0, token().hex(), 0, tuple(segments))
    if not await create_manifest(store, manifest):
        raise NotEmpty(f"{MANIFESTS}{partition}")


def _segments(batches: Iterable[bytes]) -> Iterator[Sequence[bytes]]:
    part: list[bytes] = []
    size = 0
    for batch in batches:
        part.append(batch)
        size += len(batch)
        if size >= SEGMENT_BYTES:
            yield part
            part, size = [], 0
    if part:
        yield part
