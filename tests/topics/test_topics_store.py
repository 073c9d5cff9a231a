"""The content of ``topics.json`` does not depend on what was encoded before."""

from __future__ import annotations

from uuid import UUID

from hypothesis import given
from hypothesis import strategies as st

from callboard.runtime.topics.store import TableEncoder, TopicRow, TopicsFile, encode_table

rows = st.builds(
    TopicRow,
    name=st.sampled_from(["orders", "payments"]),
    topic_id=st.builds(UUID, int=st.integers(0, 3)),
    partitions=st.integers(1, 3),
    first_slot=st.integers(0, 9),
    settings=st.sampled_from([{}, {"retention.ms": "1"}]),
)


@given(st.lists(rows, max_size=6), st.lists(st.lists(st.integers(0, 5), max_size=4), max_size=5))
def test_table_that_was_encoded_before_and_has_changed(chosen: list[TopicRow], tables: list[list[int]]) -> None:
    """Rows stay the same objects while they are unchanged."""
    encoder = TableEncoder()
    for numbers in tables:
        by_id = {chosen[number].topic_id: chosen[number] for number in numbers if number < len(chosen)}
        table = TopicsFile(UUID(int=9), len(by_id), tuple(by_id.values()))
        assert encoder.encode(table) == encode_table(table)
