"""Defaults of compaction, apart from the code, since the help of ``callboard compact`` shows them."""

from __future__ import annotations

KEYS_BYTES_MAX = 128 * 1024 * 1024
"""Kafka's ``log.cleaner.dedupe.buffer.size``. Enough for some 700,000 keys here, and for 5,000,000 in Kafka, which
stores only hashes. Partitions with more keys are rare: Kafka cleans them in several rounds; here keys go to disk."""

GRACE_MS = 60 * 60 * 1000
"""Longer than any reader needs for a partition; Spark tasks may open a file long after it was listed."""

DELETE_RETENTION_MS = 24 * 60 * 60 * 1000  # Kafka's delete.retention.ms

SEGMENT_BYTES = 104857600  # Kafka's offsets.topic.segment.bytes

MIN_CLEANABLE_DIRTY_RATIO = 0.5
"""Kafka's ``min.cleanable.dirty.ratio``: each new byte costs about one rewritten byte."""
