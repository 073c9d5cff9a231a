"""Metadata requests after the deletion of a topic."""

from __future__ import annotations

import pytest
from topic_api_helpers import FakeServices, create_topics, delete_topics, made, metadata, node

from callboard.actors.errors import ErrorCode
from callboard.runtime.topics import admin

__all__ = ["node"]


def test_metadata_after_deletion_returns_unknown_topic_once_and_creates_it(node: FakeServices) -> None:
    """As in Kafka, whose first response says so while the topic is created."""
    made(node, "gone")
    made(node, "kept")
    delete_topics(node, "gone")
    codes = [{topic.name: topic.error_code for topic in metadata(node, ["gone", "kept"], create=True).topics}]
    codes.append({topic.name: topic.error_code for topic in metadata(node, ["gone", "kept"], create=True).topics})
    assert codes == [{"gone": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "kept": 0}, {"gone": 0, "kept": 0}]


def test_metadata_after_deletion_and_creation_returns_new_topic(node: FakeServices) -> None:
    made(node, "again")
    delete_topics(node, "again")
    create_topics(node, {"name": "again"})
    assert [topic.error_code for topic in metadata(node, ["again"], create=True).topics] == [0]


def test_deleted_names_are_bounded(node: FakeServices, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin, "DELETED_NAMES_MAX", 2)
    for name in ("a", "b", "c"):
        made(node, name)
        delete_topics(node, name)
    assert node.topic_admin.take_deleted(["a", "b", "c"]) == {"b", "c"}
