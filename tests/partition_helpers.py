"""Helpers that write the folders of log partitions: batches of records, transactional batches, segments."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from callboard.actors.records import MarkerRecord, MemberValue, PendingOffsetRecord, Record
from callboard.runtime.log.format.batch import Producer, encode_batch
from callboard.runtime.log.format.encoder import RecordEncoder
from callboard.runtime.log.partition import TOPIC, folder_name
from callboard.runtime.log.reading.segment import segment_name

TIME_MS = 1_700_000_000_000
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"
ASSIGNMENT = b"\0\0\0\0\0\1\0\1t\0\0\0\2\0\0\0\0\0\0\0\1\xff\xff\xff\xff"
MEMBER = MemberValue("m-1", None, "client", "/10.0.0.1", 60_000, 10_000, SUBSCRIPTION, ASSIGNMENT)


def plain(base: int, *records: Record, at_ms: int = TIME_MS) -> bytes:
    encoder = RecordEncoder()
    return encode_batch(base, at_ms, at_ms, [encoder.frame(record, delta) for delta, record in enumerate(records)])


def transactional(base: int, record: PendingOffsetRecord | MarkerRecord) -> bytes:
    producer = Producer(record.producer_id, record.producer_epoch, isinstance(record, MarkerRecord))
    return encode_batch(base, TIME_MS, TIME_MS, [RecordEncoder().frame_in_transaction(record, 0)], producer)


def write(data: Path, number: int, *segments: Sequence[bytes], topic: str = TOPIC) -> list[Path]:
    """A partition's folder with these batches; each segment is named by the first offset in it."""
    folder = data / folder_name(number, topic)
    folder.mkdir()
    paths = []
    for batches in segments:
        paths.append(folder / segment_name(int.from_bytes(batches[0][:8], "big")))
        paths[-1].write_bytes(b"".join(batches))
    return paths
