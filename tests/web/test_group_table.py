"""The table of groups: its orders, filters and cursors, compared with those of plain Python."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.group.offsets import GroupData, packed_types
from callboard.actors.recorder.now import GroupNow, OffsetsNow
from callboard.actors.records import GroupRecord, GroupValue, OffsetRecord, OffsetValue
from callboard.runtime.kafka.node_subjects import ListedState
from callboard.runtime.node.group_figures import TopicRange
from callboard.runtime.web.group_list import SORTS, STATES, GroupQuery, parse_query, select
from callboard.runtime.web.group_rows import FoundGroup, GroupRow, GroupsCopy, Limits, Pacer, RowCache, with_now
from callboard.runtime.web.group_table import COLUMNS, GroupTable

DAY_MS = 86_400_000
counts = st.none() | st.integers(0, 3) | st.just(2**62)
topics = st.none() | st.dictionaries(st.sampled_from(["jobs", "mails"]), st.none() | st.integers(0, 3))
names = st.text("ab/é", max_size=3)
values = st.tuples(
    st.sampled_from(STATES[:3]), st.sampled_from(["classic", "consumer"]), counts, topics, counts, counts, counts
)
Values = tuple[str, str, Any, Any, Any, Any, Any]
NOW_MS = 2
rows = st.dictionaries(names, values, max_size=12)


def table_of(groups: dict[str, Values]) -> GroupTable:
    made = [GroupRow(name, state, kind, "", *figures) for name, (state, kind, *figures) in sorted(groups.items())]
    return GroupTable(made, Pacer())


def expected(table: GroupTable, query: GroupQuery) -> list[GroupRow]:
    found = [
        row
        for row in table.rows
        if (not query.states or row.state.lower() in query.states)
        and (not query.types or row.type in query.types)
        and row.group.startswith(query.prefix)
        and query.contains.lower() in row.group.lower()
        and (query.guarded is None or query.guarded == ((row.guarded_until_ms or 0) > NOW_MS))
        and (not query.topic or query.topic in (row.topics or {}))
        and (query.min_lag is None or (row.lag is not None and row.lag >= query.min_lag))
    ]
    column = COLUMNS[query.sort.removeprefix("-")]
    known = [row for row in found if column(row) is not None]
    # Rows of one value are in the order of their names, but the names themselves can be descending.
    known.sort(key=column, reverse=query.sort.startswith("-"))
    return known + [row for row in found if column(row) is None]


@given(
    rows,
    st.sampled_from(SORTS),
    st.integers(1, 4),
    st.fixed_dictionaries(
        {},
        optional={
            "state": st.sampled_from([STATES[0], f"{STATES[1]},{STATES[2]}"]),
            "type": st.sampled_from(["classic", "Consumer"]),
            "prefix": st.text("ab/é", min_size=1, max_size=2),
            "contains": st.text("aB/É", min_size=1, max_size=2),
            "guarded": st.sampled_from(["true", "false"]),
            "topic": st.sampled_from(["jobs", "mails", "none"]),
            "min_lag": st.integers(0, 3).map(str),
        },
    ),
)
def test_pages_have_each_matching_group_once_in_order(
    groups: dict[str, Values], sort: str, limit: int, filters: dict[str, str]
) -> None:
    table = table_of(groups)
    given_parameters = [*filters.items(), ("sort", sort), ("limit", str(limit))]
    found: list[GroupRow] = []
    page = select(table, parse_query(given_parameters), NOW_MS)
    while page.after is not None:
        assert len(page.rows) == limit
        found += page.rows
        page = select(table, parse_query([*given_parameters, ("after", page.after)]), NOW_MS)
    found += page.rows
    assert found == expected(table, parse_query(given_parameters))


@given(st.dictionaries(names, values, min_size=3, max_size=6), st.sampled_from(SORTS))
def test_cursor_is_valid_when_its_row_is_gone(groups: dict[str, Values], sort: str) -> None:
    table = table_of(groups)
    first = select(table, parse_query([("sort", sort), ("limit", "1")]), NOW_MS)
    rest = [row for row in table.rows if row != first.rows[0]]
    assert first.after is not None
    second = select(GroupTable(rest, Pacer()), parse_query([("sort", sort), ("after", first.after)]), NOW_MS)
    assert list(second.rows) == expected(table, parse_query([("sort", sort)]))[1:]


def test_topics_are_sorted_by_their_number() -> None:
    topics = {"a": {"x": 1, "y": 2}, "b": {}}
    table = table_of({name: ("Empty", "classic", 0, found, None, None, None) for name, found in topics.items()})
    assert [row.group for row in select(table, parse_query([("sort", "topics")]), NOW_MS).rows] == ["b", "a"]


# The cache of rows ---------------------------------------------------------------------------------------------------


def packed_group(offset: int) -> bytes:
    data = GroupData()
    data.replay(OffsetRecord("", "jobs", 0, OffsetValue(offset, 0, "", 0)))
    return data.pack()


def ranges(end: int) -> dict[str, TopicRange]:
    return {"jobs": TopicRange([0], [end])}


def copy_of(
    passive: dict[str, bytes], *, active: Sequence[ListedState] = (), end: int = 10, now_ms: int = 0, days: int = 7
) -> GroupsCopy:
    limits = Limits(days * DAY_MS, 60_000)
    return GroupsCopy(ranges(end), [tuple(passive.items())], active, (), now_ms, limits)


class CountedTypes:
    """Counts how many groups are read."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, packed: bytes) -> tuple[str, str]:
        self.count += 1
        return "classic", ""


def test_row_is_made_again_only_if_its_group_or_its_topic_has_changed() -> None:
    types = CountedTypes()
    cache = RowCache(types)
    first, second = packed_group(3), packed_group(5)
    cache.take(copy_of({"a": first, "b": second}), Pacer())
    assert [row.lag for row in cache.rows.values()] == [7, 5]
    assert types.count == cache.changes == 2
    cache.take(copy_of({"a": first, "b": second}), Pacer())
    assert types.count == cache.changes == 2
    cache.take(copy_of({"a": first, "b": packed_group(6)}), Pacer())
    assert [row.lag for row in cache.rows.values()] == [7, 4]
    assert types.count == 3
    cache.take(copy_of({"a": first}, end=11), Pacer())
    assert {name: row.lag for name, row in cache.rows.items()} == {"a": 8}
    assert types.count == 4


def test_row_has_the_expiry_of_a_group_and_changes_with_the_retention() -> None:
    cache = RowCache(packed_types)
    cache.take(copy_of({"a": packed_group(3), "b": GroupData().pack()}), Pacer())
    assert [row.expires_ms for row in cache.rows.values()] == [7 * DAY_MS, None]
    cache.take(copy_of({"a": packed_group(3)}, days=2), Pacer())
    assert [row.expires_ms for row in cache.rows.values()] == [2 * DAY_MS]


@pytest.mark.parametrize(
    ("dates_ms", "expected_ms"),
    [((1000, 61_000), 61_000), ((500,), None), ((1000, 61_001), None), ((1000,), None), ((2000, 70_000), 2000)],
)
def test_row_has_the_guard_of_a_group_that_had_members(dates_ms: Sequence[int], expected_ms: int | None) -> None:
    data, simple = GroupData(), GroupData()
    data.replay(GroupRecord("", GroupValue("consumer", 3, None, None, 1000, ())))
    for number, date_ms in enumerate(dates_ms):
        for each in (data, simple):
            each.replay(OffsetRecord("", "jobs", number, OffsetValue(3, 0, "", date_ms)))
    cache = RowCache(packed_types)
    cache.take(copy_of({"a": data.pack(), "b": simple.pack()}, now_ms=1000), Pacer())
    assert [row.guarded_until_ms for row in cache.rows.values()] == [expected_ms, None]


def test_row_of_a_group_with_an_actor_has_what_it_says() -> None:
    row = GroupRow("a", "Empty", "classic", "consumer", 0, {}, None)
    now = GroupNow(0, "Empty", 3, guarded_until_ms=70, offsets=OffsetsNow(1, first_expires_ms=90))
    assert with_now(row, now) == row._replace(guarded_until_ms=70, expires_ms=90)
    assert with_now(row._replace(members=1), now) == row._replace(members=1, guarded_until_ms=70)
    assert with_now(row, None) == row
    never = now._replace(offsets=OffsetsNow(1, first_expires_ms=2**62))
    assert with_now(row, never) == row._replace(guarded_until_ms=70)


def test_group_with_an_actor_keeps_its_figures_until_it_is_asked_again() -> None:
    cache = RowCache(CountedTypes())
    stable = ListedState("a", "Stable", "classic", "consumer")
    cache.take(copy_of({}, active=[stable, ListedState("q", "Dead", "classic", "")]), Pacer())
    assert cache.rows["a"] == GroupRow("a", "Stable", "classic", "consumer")
    cache.add(
        [GroupRow("a", "Stable", "classic", "consumer", 2, {"jobs": 4}, 4), GroupRow("gone", "Empty", "classic", "")]
    )
    cache.take(copy_of({}, active=[stable._replace(state="Empty")]), Pacer())
    assert list(cache.rows.values()) == [GroupRow("a", "Empty", "classic", "consumer", 2, {"jobs": 4}, 4)]
    cache.replace("a", FoundGroup())
    assert not cache.rows


def test_thread_pauses_when_it_has_computed_for_a_millisecond() -> None:
    now_s, slept = [0.0], list[float]()
    pacer = Pacer(lambda: now_s[0], slept.append)
    pacer.pause()
    assert not slept
    now_s[0] = 0.001
    pacer.pause()
    pacer.pause()
    assert len(slept) == 1


@pytest.mark.parametrize("text", ["", "e30", "W10", "WzEsMiwzXQ", "WyJncm91cCIsMSwiYSJd", "WyJncm91cCIsImEiLDFd", "!"])
def test_invalid_cursor_is_refused(text: str) -> None:
    if not text:
        assert parse_query([("after", "")]).after is None
        return
    with pytest.raises(ValueError, match="expected the value of `after`"):
        parse_query([("after", text)])
