"""The catalogue of topics as groups see it."""

from __future__ import annotations

from collections.abc import Iterable

from .catalogue import TopicCatalogue


class CatalogueView:
    """``TopicsView`` of a catalogue. Must be used on the event loop's thread."""

    def __init__(self, catalogue: TopicCatalogue) -> None:
        self._catalogue = catalogue

    @property
    def version(self) -> int:
        return self._catalogue.files.table.version

    @property
    def created_version(self) -> int:
        return self._catalogue.files.table.created_version

    def names(self) -> Iterable[str]:
        return self._catalogue.names()

    def topic_id(self, name: str) -> bytes | None:
        topic = self._catalogue.get(name)
        return None if topic is None else topic.topic_id.bytes

    def partition_count(self, name: str) -> int | None:
        topic = self._catalogue.get(name)
        return None if topic is None else len(topic.partitions)
