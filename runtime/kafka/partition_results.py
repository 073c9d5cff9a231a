"""The order of topics and partitions in responses, as in Kafka.

Partitions that do not exist are refused before the group is asked. If there are any, they come first, and each topic
occurs once in the response. Otherwise the response has the order of the request, and a topic that occurs twice in the
request occurs twice in the response.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import chain, islice
from typing import TypeVar

from ...actors.errors import ErrorCode
from ...actors.steps import Steps, pieces

NO_PARTITION = -(2**31) - 1
"""Stands for an unknown topic of which no partition is requested: the response has the topic without partitions.

It cannot occur in a request, because a partition number has 32 bits.
"""

Key = TypeVar("Key")
"""Identifies a topic."""

PartitionError = tuple[int, ErrorCode]
"""A partition and its error code."""

PartitionErrors = Iterable[tuple[Key, int, ErrorCode]]

TopicErrors = tuple[Key, Iterable[PartitionError]]
"""A topic and its partitions with their errors."""


def group_by_topic(answers: PartitionErrors[Key]) -> Steps[Iterator[TopicErrors[Key]]]:
    """Return each topic once, in the order of their first partitions. They can be read once, which frees them."""
    topics: dict[Key, list[PartitionError]] = {}
    for piece in pieces(answers):
        for key, index, error in piece:
            partitions = topics.setdefault(key, [])
            if index != NO_PARTITION:
                partitions.append((index, error))
        yield
    return ((key, topics.pop(key)) for key in list(topics))


def split_by_counts(answers: PartitionErrors[Key], counts: Iterable[int]) -> Iterator[TopicErrors[Key]]:
    """Split the answers into topics. ``counts``: partitions per topic, each at least 1.

    The partitions of a topic must be read before the next topic.
    """
    remaining = iter(answers)
    for count in counts:
        key, index, error = next(remaining)
        rest = ((index, error) for _, index, error in islice(remaining, count - 1))
        yield key, chain(((index, error),), rest)


def counts_if_topic_repeated(keys: Iterable[object], counts: Iterable[int]) -> Steps[Sequence[int]]:
    """Return the counts without zeros if a topic occurs more than once in the request, else nothing.

    ``keys``: the topic of each requested partition. ``counts``: the number of partitions of each entry of the request.
    """
    topics: set[object] = set()
    for piece in pieces(keys):
        topics.update(piece)
        yield
    nonzero: list[int] = []
    for sizes in pieces(counts):
        nonzero += filter(None, sizes)
        yield
    return nonzero if len(topics) < len(nonzero) else ()
