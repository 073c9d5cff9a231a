"""OffsetCleanups: deletes the offsets of deleted topics from the partitions that this node owns, and reports it.

The name of a deleted topic is free again when all partitions are clean. So a cleanup never deletes an offset of a topic
that was created later, and a partition that is loaded elsewhere is cleaned there if nobody has reported it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial

from .topics_document import TopicsDocument

DeleteOffsets = Callable[[frozenset[str], Callable[[], None]], None]
"""Deletes the offsets of topics in all groups of this node, then calls back."""

Cleanup = tuple[int, int, int]
"""The number of a deletion, a partition and its epoch."""


class OffsetCleanups:
    """``is_served``: whether a partition is loaded now. ``report`` gets the clean partitions by number of deletion."""

    def __init__(
        self,
        delete_offsets: DeleteOffsets,
        is_served: Callable[[int], bool],
        report: Callable[[Mapping[int, Collection[int]]], None],
    ) -> None:
        self._delete_offsets = delete_offsets
        self._is_served = is_served
        self._report = report
        self._epochs: dict[int, int] = {}  # of partitions that are loading or loaded
        self._begun: set[Cleanup] = set()

    def load(self, partition: int, epoch: int, document: TopicsDocument) -> None:
        """A partition begins to load."""
        self._epochs[partition] = epoch
        self.clean(document)

    def lose(self, partitions: Collection[int]) -> None:
        """What was not reported yet is cleaned by the next owner."""
        for partition in partitions:
            self._epochs.pop(partition, None)

    def clean(self, document: TopicsDocument) -> None:
        """Begin the cleanups that a version asks for."""
        self._forget_old(document)
        cleanups: list[Cleanup] = []
        names: set[str] = set()
        for deletion in document.deletions:
            for partition in deletion.uncleaned & self._epochs.keys():
                cleanup = deletion.number, partition, self._epochs[partition]
                if cleanup not in self._begun:
                    cleanups.append(cleanup)
                    names |= deletion.names
        if cleanups:
            self._begun.update(cleanups)
            self._delete_offsets(frozenset(names), partial(self._finish, cleanups))

    def _forget_old(self, document: TopicsDocument) -> None:
        numbers = {deletion.number for deletion in document.deletions}
        self._begun = {cleanup for cleanup in self._begun if cleanup[0] in numbers}

    def _finish(self, cleanups: Sequence[Cleanup]) -> None:
        """A partition that was lost meanwhile, or that could not be loaded, does not count."""
        cleaned: dict[int, list[int]] = {}
        for number, partition, epoch in cleanups:
            if self._epochs.get(partition) == epoch and self._is_served(partition):
                cleaned.setdefault(number, []).append(partition)
        if cleaned:
            self._report(cleaned)
