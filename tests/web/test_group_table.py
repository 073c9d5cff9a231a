"""The table of groups: its orders, filters and cursors, compared with those of plain Python."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from callboard.actors.group.offsets import GroupData
from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.runtime.kafka.node_subjects import ListedState
from callboard.runtime.node.group_figures import TopicRange
from callboard.runtime.web.group_list import SORTS, STATES, GroupQuery, parse_query, select
from callboard.runtime.web.group_rows import FoundGroup, GroupRow, GroupsCopy, Pacer, RowCache
from callboard.runtime.web.group_table import COLUMNS, GroupTable

counts = st.none() | st.integers(0, 3) | st.just(2**62)
topics = st.none() | st.dictionaries(st.sampled_from(["jobs", "mails"]), st.none() | st.integers(0, 3))
names = st.text("ab/é", max_size=3)
values = st.tuples(st.sampled_from(STATES[:3]), st.sampled_from(["classic", "consumer"]), counts, topics, counts)
rows = st.dictionaries(names, values, max_size=12)


def table_of(groups: dict[str, tuple[str, str, Any, Any, Any]]) -> GroupTable:
    made = [
        GroupRow(name, state, kind, "", members, topics, lag)
        for name, (state, kind, members, topics, lag) in sorted(groups.items())
    ]
    return GroupTable(made, Pacer())


def expected(table: GroupTable, query: GroupQuery) -> list[GroupRow]:
    found = [
        row
        for row in table.rows
        if (not query.states or row.state.lower() in query.states)
        and (not query.types or row.type in query.types)
        and row.group.startswith(query.prefix)
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
            "topic": st.sampled_from(["jobs", "mails", "none"]),
            "min_lag": st.integers(0, 3).map(str),
        },
    ),
)
def test_pages_have_each_matching_group_once_in_order(
    groups: dict[str, tuple[str, str, Any, Any, Any]], sort: str, limit: int, filters: dict[str, str]
) -> None:
    table = table_of(groups)
    given_parameters = [*filters.items(), ("sort", sort), ("limit", str(limit))]
    found: list[GroupRow] = []
    page = select(table, parse_query(given_parameters))
    while page.after is not None:
        assert len(page.rows) == limit
        found += page.rows
        page = select(table, parse_query([*given_parameters, ("after", page.after)]))
    found += page.rows
    assert found == expected(table, parse_query(given_parameters))


@given(st.dictionaries(names, values, min_size=3, max_size=6), st.sampled_from(SORTS))
def test_cursor_is_valid_when_its_row_is_gone(groups: dict[str, tuple[str, str, Any, Any, Any]], sort: str) -> None:
    table = table_of(groups)
    first = select(table, parse_query([("sort", sort), ("limit", "1")]))
    rest = [row for row in table.rows if row != first.rows[0]]
    assert first.after is not None
    second = select(GroupTable(rest, Pacer()), parse_query([("sort", sort), ("after", first.after)]))
    assert list(second.rows) == expected(table, parse_query([("sort", sort)]))[1:]


def test_topics_are_sorted_by_their_number() -> None:
    table = table_of({"a": ("Empty", "classic", 0, {"x": 1, "y": 2}, 3), "b": ("Empty", "classic", 0, {}, None)})
    assert [row.group for row in select(table, parse_query([("sort", "topics")])).rows] == ["b", "a"]


# The cache of rows ---------------------------------------------------------------------------------------------------


def packed_group(offset: int) -> bytes:
    data = GroupData()
    data.replay(OffsetRecord("", "jobs", 0, OffsetValue(offset, 0, "", 0)))
    return data.pack()


def ranges(end: int) -> dict[str, TopicRange]:
    return {"jobs": TopicRange([0], [end])}


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
    cache.take(GroupsCopy(ranges(10), [[("a", first), ("b", second)]], [], []), Pacer())
    assert [row.lag for row in cache.rows.values()] == [7, 5]
    assert types.count == cache.changes == 2
    cache.take(GroupsCopy(ranges(10), [[("a", first), ("b", second)]], [], []), Pacer())
    assert types.count == cache.changes == 2
    cache.take(GroupsCopy(ranges(10), [[("a", first), ("b", packed_group(6))]], [], []), Pacer())
    assert [row.lag for row in cache.rows.values()] == [7, 4]
    assert types.count == 3
    cache.take(GroupsCopy(ranges(11), [[("a", first)]], [], []), Pacer())
    assert {name: row.lag for name, row in cache.rows.items()} == {"a": 8}
    assert types.count == 4


def test_group_with_an_actor_keeps_its_figures_until_it_is_asked_again() -> None:
    cache = RowCache(CountedTypes())
    stable = ListedState("a", "Stable", "classic", "consumer")
    cache.take(GroupsCopy({}, [], [stable], [ListedState("q", "Dead", "classic", "")]), Pacer())
    assert cache.rows["a"] == GroupRow("a", "Stable", "classic", "consumer")
    cache.add(
        [GroupRow("a", "Stable", "classic", "consumer", 2, {"jobs": 4}, 4), GroupRow("gone", "Empty", "classic", "")]
    )
    cache.take(GroupsCopy({}, [], [stable._replace(state="Empty")], []), Pacer())
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
