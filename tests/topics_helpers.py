"""Helpers for tests of topics: batches as producers send them, and catalogues with content."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path
from struct import pack
from typing import NamedTuple
from uuid import UUID

import pytest

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.runtime.disk.crc import crc32c
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.engine.clock import SystemRandom
from callboard.runtime.log.format.batch import frame_record
from callboard.runtime.settings.table import Settings
from callboard.runtime.topics.catalogue import TopicCatalogue

SETTINGS = Settings(offsets_topic_num_partitions=3)

MESSAGE_MAX_BYTES = 1_048_588

CONTROL_BIT = 0x20
TRANSACTIONAL_BIT = 0x10


def producer_batch(
    count: int = 1,
    *,
    value: bytes = b"hello",
    timestamps: list[int] | None = None,
    attributes: int = 0,
    producer: tuple[int, int, int] = (-1, -1, -1),
    last_delta: int | None = None,
    claimed: int | None = None,
    base_offset: int = 0,
    magic: int = 2,
    crc_change: int = 0,
    records: bytes | None = None,
) -> bytes:
    """Encode a producer's batch, possibly an invalid one. ``producer``: id, epoch and first sequence number."""
    times = timestamps or [1000 + index for index in range(count)]
    if records is None:
        records = b"".join(
            frame_record(time - times[0], index, b"k", value) for index, time in enumerate(times[:count])
        )
    header = pack(
        ">hiqqqhii",
        attributes,
        count - 1 if last_delta is None else last_delta,
        times[0],
        max(times),
        *producer,
        count if claimed is None else claimed,
    )
    checked_bytes = header + records
    return (
        pack(">qiibI", base_offset, len(checked_bytes) + 9, -1, magic, crc32c(checked_bytes) ^ crc_change)
        + checked_bytes
    )


class TopicSnapshot(NamedTuple):
    """The state of a topic that must be the same after a restart."""

    name: str
    topic_id: UUID
    ends: list[int]


def open_catalogue(folder: Path) -> TopicCatalogue:
    return TopicCatalogue(folder, SETTINGS, SystemRandom())


def topic_snapshots(catalogue: TopicCatalogue) -> dict[str, TopicSnapshot]:
    topics = [catalogue.get(name) for name in catalogue.names()]
    return {
        topic.name: TopicSnapshot(topic.name, topic.topic_id, [log.end_offset for log in topic.partitions])
        for topic in topics
        if topic
    }


def error_code_of(action: Callable[[], object]) -> ErrorCode:
    with pytest.raises(CoordinatorError) as caught:
        action()
    return caught.value.code


def delete(catalogue: TopicCatalogue, name: str) -> None:
    topic = catalogue.get(name)
    assert topic is not None
    [refusal] = immediate_outcome(partial(catalogue.delete_many, [topic]))
    if refusal is not None:
        raise refusal


def create_topics_with_records(catalogue: TopicCatalogue) -> None:
    catalogue.create("plays", 2).append(1, producer_batch(5))
    catalogue.create("props", 1).append(0, producer_batch(2))
    catalogue.create("empty", 3)


def open_copy(folder: Path, copy: Path) -> TopicCatalogue:
    """Open a copy of the files, as after a kill of the process on ``folder``: nothing was synced or closed."""
    for name in ("topics.json", "topics.ends"):
        shutil.copy(folder / name, copy / name)
    return open_catalogue(copy)
