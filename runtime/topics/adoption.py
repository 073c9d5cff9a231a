"""Adoption: a catalogue gets exactly the topics that somebody else keeps: the cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from ...actors.steps import Steps, pieces
from .catalogue import TopicCatalogue, TopicLimits
from .draft import TopicsDraft
from .policy import policy_of
from .store import NewTopic, TopicRow


class Adoption:
    """``limits``: the settings of the catalogue."""

    def __init__(self, catalogue: TopicCatalogue, limits: TopicLimits) -> None:
        self._catalogue = catalogue
        self._limits = limits

    def adopt(self, rows: Sequence[TopicRow], done: Callable[[Exception | None], None]) -> None:
        """Have exactly these topics, with one durable change. Their slots do not count. Partitions only become more.

        After an error a part of it may have been done: adopt them again.
        """
        self._catalogue.files.changes.submit(partial(self._adopt, {row.name: row for row in rows}), done)

    def _adopt(self, rows: Mapping[str, TopicRow], draft: TopicsDraft) -> Steps[bool]:
        is_changed = False
        for present in pieces(list(draft.table.rows.values())):
            for row in present:
                if row.name not in rows or rows[row.name].topic_id != row.topic_id:
                    self._remove(draft, row.name)
                    is_changed = True
            yield
        for wanted in pieces(rows.values()):
            for row in wanted:
                is_changed = (yield from self._adopt_topic(draft, row)) or is_changed
            yield
        return is_changed

    def _remove(self, draft: TopicsDraft, name: str) -> None:
        topic = self._catalogue.get(name)
        assert topic is not None
        draft.remove(name, partial(self._catalogue.unpublish, topic))

    def _adopt_topic(self, draft: TopicsDraft, wanted: TopicRow) -> Steps[bool]:
        """Whether the topic has changed."""
        name, present = wanted.name, draft.table.rows.get(wanted.name)
        if present is None:
            yield from self._catalogue.add_to(
                draft, NewTopic(name, wanted.partitions, wanted.settings), wanted.topic_id
            )
            return True
        topic = self._catalogue.get(name)
        assert topic is not None
        if wanted.partitions > present.partitions:
            yield from self._catalogue.grow_in(draft, topic, wanted.partitions)
        if wanted.settings != present.settings:
            row = draft.table.rows[name]._replace(settings=wanted.settings)
            draft.change_settings(row, partial(topic.use_policy, policy_of(row.settings, self._limits)))
        return present != draft.table.rows[name]
