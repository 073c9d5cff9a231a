"""The topics of a cluster: names, ids, partition counts and settings, and which offsets are still to be deleted. Pure.

Settings of groups are here too, and users, ACLs and quotas: they change as rarely, and all nodes need them.

A version is immutable. Whoever creates the next version has changed the topics. Records are not here: they are in the
memory of the node that leads the topic.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any, NamedTuple
from uuid import UUID

from ...actors.steps import Steps, pieces
from ..security.document import SecurityDocument, document_of
from ..settings.group_configs import AllOverrides
from .documents import NO_FIELDS, decode_in_steps, encode_in_steps


class SharedTopic(NamedTuple):
    """``first_epoch``: the leader epoch in which it was created. ``settings``: texts by name."""

    topic_id: UUID
    partitions: int
    first_epoch: int
    settings: Mapping[str, str]


class Deletion(NamedTuple):
    """Topics whose offsets the groups of ``uncleaned`` partitions of ``__consumer_offsets`` may still have.

    ``number``: the version of the document in which the topics are gone. Their names cannot be used meanwhile.
    """

    number: int
    names: frozenset[str]
    uncleaned: frozenset[int]


class TopicsDocument(NamedTuple):
    """``topics`` by name. ``groups``: the settings of groups. ``unknown``: fields of a newer version.

    ``security``: users, ACLs and quotas; None if none were ever set.
    """

    version: int
    token: str
    topics: Mapping[str, SharedTopic]
    deletions: tuple[Deletion, ...] = ()
    groups: AllOverrides = {}
    security: SecurityDocument | None = None
    unknown: Mapping[str, Any] = NO_FIELDS

    def numbered(self, version: int, token: str) -> TopicsDocument:
        return self._replace(version=version, token=token)

    def without_cleaned(self, cleaned: Mapping[int, Collection[int]]) -> TopicsDocument:
        """Partitions have no offsets of deleted topics any more: partitions by the number of the deletion."""
        deletions = [
            deletion._replace(uncleaned=deletion.uncleaned.difference(cleaned.get(deletion.number, ())))
            for deletion in self.deletions
        ]
        return self._replace(deletions=tuple(deletion for deletion in deletions if deletion.uncleaned))

    def parts(self) -> Iterator[list[Any]]:
        """What most of its memory is in, to free it in steps."""
        yield list(self.topics.values())
        for section in ({} if self.security is None else self.security.sections).values():
            for value in section.values():
                yield list(value) if isinstance(value, list) else [value]

    def encode(self) -> Steps[bytes]:
        topics: dict[str, Any] = {}
        for piece in pieces(self.topics.items()):
            topics.update((name, _topic_fields(topic)) for name, topic in piece)
            yield
        deletions = [[each.number, sorted(each.names), sorted(each.uncleaned)] for each in self.deletions]
        fields = {"version": self.version, "token": self.token, "topics": topics, "deletions": deletions}
        groups = fields["groups"] = dict[str, Any]()
        for settings in pieces(self.groups.items()):
            groups.update((group_id, dict(own)) for group_id, own in settings)
            yield
        if self.security is not None:
            fields["security"] = self.security.fields()
        return (yield from encode_in_steps(fields, self.unknown))


def _topic_fields(topic: SharedTopic) -> list[Any]:
    return [topic.topic_id.hex, topic.partitions, topic.first_epoch, dict(topic.settings)]


def _topic_of(fields: Any) -> SharedTopic:
    topic_id, partitions, first_epoch, settings = fields
    return SharedTopic(UUID(hex=topic_id), partitions, first_epoch, settings)


def decode_topics(data: bytes) -> Steps[TopicsDocument]:
    """Raises FormatUnknown."""
    fields = yield from decode_in_steps("the document of topics", data)
    topics: dict[str, SharedTopic] = {}
    for piece in pieces(fields.pop("topics").items()):
        topics.update((name, _topic_of(own)) for name, own in piece)
        yield
    deletions = tuple(
        Deletion(number, frozenset(names), frozenset(uncleaned)) for number, names, uncleaned in fields.pop("deletions")
    )
    groups = fields.pop("groups", {})  # an earlier Callboard wrote none
    security = document_of(fields.pop("security")) if "security" in fields else None
    return TopicsDocument(fields.pop("version"), fields.pop("token"), topics, deletions, groups, security, fields)
