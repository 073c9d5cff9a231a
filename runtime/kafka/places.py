"""How Kafka lays out its answer about the partitions of a request, some of which no group has seen.

If something was refused before, it comes first, and a topic stands once, wherever its partitions came from. If nothing
was, the answer follows the request, and a topic that stands there twice is answered twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TypeVar

from ...actors.errors import ErrorCode

NO_PARTITION = -(2**31) - 1
"""The place of a topic that does not exist and of which no partition is asked for: its bare name is the answer.

No request can have this number: a partition's has 32 bits.
"""

Key = TypeVar("Key")
"""What names a topic."""

Answered = tuple[int, ErrorCode]
"""A partition and its answer."""

Answers = Iterable[tuple[Key, int, ErrorCode]]


def together(answers: Answers[Key]) -> list[tuple[Key, list[Answered]]]:
    """Each topic once, in the order of their first partitions."""
    topics: dict[Key, list[Answered]] = {}
    for key, index, error in answers:
        partitions = topics.setdefault(key, [])
        if index != NO_PARTITION:
            partitions.append((index, error))
    return list(topics.items())


def apart(answers: Answers[Key], counts: Iterable[int]) -> list[tuple[Key, list[Answered]]]:
    """So many partitions of the first topic, so many of the second; ``counts`` has no 0."""
    left = iter(answers)
    slices = (list(islice(left, count)) for count in counts)
    return [(one[0][0], [(index, error) for _, index, error in one]) for one in slices]


def counts_if_twice(keys: Iterable[object], counts: Sequence[int]) -> tuple[int, ...]:
    """Of each topic in a request how many partitions are asked for, if one of the topics stands there twice.

    ``keys``: the topic of each of those partitions.
    """
    asked = tuple(count for count in counts if count)
    return asked if len(set(keys)) < len(asked) else ()
