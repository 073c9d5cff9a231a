"""Groups see topics, their ids and partition counts, and notice changes by the version."""

from __future__ import annotations

from pathlib import Path

from topics_helpers import open_catalogue

from callboard.runtime.topics.view import CatalogueView


def test_view_follows_created_grown_and_deleted_topics(tmp_path: Path) -> None:
    catalogue = open_catalogue(tmp_path)
    view = CatalogueView(catalogue)
    assert (view.partition_count("jobs"), view.topic_id("jobs")) == (None, None)
    versions = [view.version]
    topic = catalogue.create("jobs", 3)
    assert (view.partition_count("jobs"), view.topic_id("jobs")) == (3, topic.topic_id.bytes)
    assert "jobs" in view.names()
    versions.append(view.version)
    catalogue.grow(topic, 5, lambda error: None)
    assert view.partition_count("jobs") == 5
    versions.append(view.version)
    catalogue.delete_many([topic], lambda outcomes: None)
    assert view.partition_count("jobs") is None
    versions.append(view.version)
    assert versions == sorted(set(versions)), "each change has a larger version"
