"""The hash by which a group notices that a topic was created, has grown, was deleted, or was created again."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b

from ..ports import TopicsView


def metadata_hash(topics: TopicsView, names: Iterable[str]) -> int:
    """A signed 64-bit number; 0 if none of these topics exists."""
    digest, is_empty = blake2b(digest_size=8), True
    for name in sorted(names):
        topic_id, count = topics.topic_id(name), topics.partition_count(name)
        if topic_id is not None and count is not None:
            is_empty = False
            digest.update(b"%b%d\0" % (topic_id, count))
    return 0 if is_empty else int.from_bytes(digest.digest(), signed=True)
