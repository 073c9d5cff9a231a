"""TopicAdmin: a topic is deleted in one place, which also reports it to the groups."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from topics_helpers import error_code_of

from callboard.actors.errors import ErrorCode
from callboard.actors.steps import run_steps
from callboard.runtime.disk.group_commit import immediate_outcome
from callboard.runtime.engine.clock import SystemRandom
from callboard.runtime.settings.table import OFFSETS_TOPIC, Settings
from callboard.runtime.topics.admin import TO_THE_END, TopicAdmin
from callboard.runtime.topics.catalogue import TopicCatalogue


@pytest.fixture
def topics(tmp_path: Path) -> TopicCatalogue:
    return TopicCatalogue(tmp_path, Settings(), SystemRandom())


def test_topic_admin_delete_reports_deleted_topics_once(topics: TopicCatalogue) -> None:
    """A topic that is already gone is not reported: a new one with its name keeps its offsets."""
    reported: list[frozenset[str]] = []
    admin = TopicAdmin(topics, reported.append)
    first, second = (topics.create(name, 1) for name in ("plays", "masks"))
    [refusal] = immediate_outcome(partial(admin.delete, [first]))
    assert refusal is None
    gone, deleted = immediate_outcome(partial(admin.delete, [first, second]))
    assert gone is not None
    assert gone.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert deleted is None
    assert reported == [frozenset({"plays"}), frozenset({"masks"})]
    immediate_outcome(partial(admin.delete, [first]))
    assert len(reported) == 2


def test_topic_admin_reports_deletion_before_done(topics: TopicCatalogue) -> None:
    steps: list[str] = []
    admin = TopicAdmin(topics, lambda names: steps.append(f"reported {sorted(names)}"))
    admin.delete([topics.create("plays", 1)], lambda _outcomes: steps.append("done"))
    assert steps == ["reported ['plays']", "done"]


def test_topic_admin_delete_records_of_unknown_and_internal_partition_is_refused(topics: TopicCatalogue) -> None:
    admin = TopicAdmin(topics, lambda _names: None)
    internal, plays = topics.get(OFFSETS_TOPIC), topics.create("plays", 1)
    assert internal is not None
    refused = partial(run_steps, admin.delete_records(internal, 0, TO_THE_END))
    assert error_code_of(refused) is ErrorCode.INVALID_TOPIC_EXCEPTION
    refused = partial(run_steps, admin.delete_records(plays, 1, TO_THE_END))
    assert error_code_of(refused) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert run_steps(admin.delete_records(plays, 0, TO_THE_END)) == 0
