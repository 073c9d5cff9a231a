"""Checks of the arguments of admin methods, which come from a program: an actor would fail, or ignore a wrong type."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..member.resources import check_text


def check_group(group: object) -> None:
    """Raises ValueError. A group whose id cannot be encoded could be neither stored nor listed."""
    check_text("group", group)


def check_partition(partition: object) -> None:
    """Raises TypeError."""
    topic, number = partition if isinstance(partition, tuple) and len(partition) == 2 else (None, None)
    if not isinstance(topic, str) or type(number) is not int:
        raise TypeError(f"partition {partition!r}: expected a topic and a number, as in ('jobs', 0)")


def check_targets(targets: object) -> None:
    """Raises TypeError. A key is a partition, or the topic of several."""
    if not isinstance(targets, Mapping):
        raise TypeError(f"targets {targets!r}: expected offsets by partition, as in {{('jobs', 0): 5}}")
    for key in targets:
        if not isinstance(key, str):
            check_partition(key)


def check_list(argument: str, words: Iterable[str]) -> None:
    """Raises TypeError for one word: each of its characters would count as a word."""
    if isinstance(words, str):
        raise TypeError(f"{argument}={words!r}: expected a list of words, as in [{words!r}]")
