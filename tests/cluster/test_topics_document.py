"""The topics of a cluster: pure rules of the document, of the next version, and of what is cleaned."""

from __future__ import annotations

import json
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.errors import CoordinatorError, ErrorCode
from callboard.actors.steps import run_steps
from callboard.runtime.cluster.offset_cleanups import OffsetCleanups
from callboard.runtime.cluster.topics_document import Deletion, SharedTopic, TopicsDocument, decode_topics
from callboard.runtime.cluster.topics_draft import OffsetsRemain, SharedTopicsDraft, draft_of
from callboard.runtime.topics.store import NewTopic

PARTITIONS = 3  # of the offsets topic
ROOM = 100
FIRST, SECOND = UUID(int=1), UUID(int=2)
EMPTY = TopicsDocument(0, "", {})


def changed(document: TopicsDocument, *changes: Callable[[SharedTopicsDraft], None]) -> TopicsDocument:
    """The next version after all changes."""
    draft = run_steps(draft_of(document, PARTITIONS))
    for change in changes:
        change(draft)
    following = run_steps(draft.changed())
    return document if following is None else following.numbered(document.version + 1, "t")


def created(document: TopicsDocument = EMPTY, name: str = "t", topic_id: UUID = FIRST) -> TopicsDocument:
    return changed(document, lambda draft: draft.create(NewTopic(name, 2), topic_id, 7, ROOM))


def error_of(document: TopicsDocument, change: Callable[[SharedTopicsDraft], None]) -> ErrorCode:
    with pytest.raises(CoordinatorError) as error:
        changed(document, change)
    return error.value.code


def test_topic_is_created_with_its_epoch() -> None:
    assert created().topics == {"t": SharedTopic(FIRST, 2, 7, {})}


def test_second_of_two_creators_is_told_that_the_topic_exists() -> None:
    document = created()
    assert error_of(document, lambda draft: draft.create(NewTopic("t", 2), SECOND, 7, ROOM)) == (
        ErrorCode.TOPIC_ALREADY_EXISTS
    )


def test_repeated_creation_with_the_same_id_changes_nothing() -> None:
    document = created()
    assert created(document) is document


def test_topic_grows_and_its_settings_change() -> None:
    document = changed(
        created(),
        lambda draft: draft.grow("t", FIRST, 5, ROOM),
        lambda draft: draft.alter("t", FIRST, lambda settings: {**settings, "retention.ms": "1"}),
    )
    assert document.topics["t"] == SharedTopic(FIRST, 5, 7, {"retention.ms": "1"})


def test_refused_change_changes_nothing() -> None:
    document = created()
    assert error_of(document, lambda draft: draft.grow("t", FIRST, 2, ROOM)) == ErrorCode.INVALID_PARTITIONS
    assert error_of(document, lambda draft: draft.grow("t", FIRST, ROOM + 1, ROOM)) == ErrorCode.POLICY_VIOLATION
    assert error_of(document, lambda draft: draft.delete("t", SECOND)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert error_of(document, lambda draft: draft.alter("t", FIRST, lambda _: {"no.such": "1"})) == (
        ErrorCode.INVALID_CONFIG
    )


def test_name_of_deleted_topic_is_free_when_all_partitions_are_clean() -> None:
    document = changed(created(), lambda draft: draft.delete("t", FIRST))
    assert document.deletions == (Deletion(2, frozenset({"t"}), frozenset({0, 1, 2})),)
    document = changed(document, lambda draft: draft.clean({2: [0, 2], 5: [1]}))
    with pytest.raises(OffsetsRemain):
        run_steps(draft_of(document, PARTITIONS)).check_cleaned("t")
    document = changed(document, lambda draft: draft.clean({2: [1]}))
    assert document.deletions == ()
    run_steps(draft_of(document, PARTITIONS)).check_cleaned("t")


def test_topic_cannot_be_deleted_and_created_in_one_version() -> None:
    draft = run_steps(draft_of(created(), PARTITIONS))
    draft.delete("t", FIRST)
    with pytest.raises(OffsetsRemain):
        draft.check_cleaned("t")


def test_what_is_clean_is_not_noted_twice() -> None:
    document = changed(created(), lambda draft: draft.delete("t", FIRST), lambda draft: draft.clean({1: [0]}))
    assert changed(document, lambda draft: draft.clean({1: [0, 1, 2]})) is document


NAMES = st.sampled_from("abc")
TOPICS = st.dictionaries(
    NAMES, st.builds(SharedTopic, st.uuids(), st.integers(1, 9), st.integers(0), st.just({"x": "é"}))
)
DELETIONS = st.lists(st.builds(Deletion, st.integers(1), st.frozensets(NAMES), st.frozensets(st.integers(0, 9))))


GROUPS = st.dictionaries(NAMES, st.dictionaries(st.just("consumer.session.timeout.ms"), st.integers(1, 9)))


@given(TOPICS, DELETIONS.map(tuple), GROUPS)
def test_document_is_the_same_after_decoding(
    topics: dict[str, SharedTopic], deletions: tuple[Deletion, ...], groups: dict[str, dict[str, int]]
) -> None:
    document = TopicsDocument(3, "t", topics, deletions, groups)
    assert run_steps(decode_topics(run_steps(document.encode()))) == document


def test_document_of_an_earlier_version_has_no_settings_of_groups() -> None:
    fields = json.loads(run_steps(TopicsDocument(3, "t", {}).encode()))
    del fields["groups"]
    assert run_steps(decode_topics(json.dumps(fields).encode())) == TopicsDocument(3, "t", {})


class Groups:
    """The groups of a node: they delete offsets when ``finish`` is called."""

    def __init__(self) -> None:
        self.active = {0, 1, 2}
        self.deleting: list[tuple[frozenset[str], Callable[[], None]]] = []
        self.reports: list[dict[int, list[int]]] = []
        self.cleanups = OffsetCleanups(
            lambda names, done: self.deleting.append((names, done)),
            self.active.__contains__,
            lambda clean: self.reports.append({number: sorted(each) for number, each in clean.items()}),
        )

    def finish(self) -> None:
        deleting, self.deleting = self.deleting, []
        for _, done in deleting:
            done()


DELETED = TopicsDocument(9, "", {}, (Deletion(9, frozenset({"t"}), frozenset({0, 1})),))


def test_owned_partitions_are_cleaned_once_and_reported() -> None:
    groups = Groups()
    groups.cleanups.load(0, 4, EMPTY)
    groups.cleanups.load(2, 4, EMPTY)
    groups.cleanups.clean(DELETED)
    groups.cleanups.clean(DELETED)
    assert [names for names, _ in groups.deleting] == [{"t"}]
    groups.finish()
    assert groups.reports == [{9: [0]}]


def test_partition_that_comes_later_is_cleaned_then() -> None:
    groups = Groups()
    groups.cleanups.load(1, 4, DELETED)
    groups.finish()
    assert groups.reports == [{9: [1]}]


@pytest.mark.parametrize("comes_back", [False, True])
def test_partition_that_is_lost_meanwhile_is_not_reported(comes_back: bool) -> None:
    groups = Groups()
    groups.cleanups.load(0, 4, DELETED)
    deleting, groups.deleting = groups.deleting, []
    groups.cleanups.lose([0])
    if comes_back:
        groups.cleanups.load(0, 5, DELETED)
    for _, done in deleting:
        done()
    assert groups.reports == []
    groups.finish()
    assert groups.reports == ([{9: [0]}] if comes_back else [])


def test_partition_that_could_not_be_loaded_is_not_reported() -> None:
    groups = Groups()
    groups.active.remove(0)
    groups.cleanups.load(0, 4, DELETED)
    groups.finish()
    assert groups.reports == []
