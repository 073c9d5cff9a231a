"""The bytes that all connections hold in one kind of buffer, and who is closed above the limit."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from callboard.runtime.kafka.connections.held_bytes import HeldBytes

MAX_BYTES = 100


class Buffers:
    """The bytes of holders that are numbers, and who was evicted."""

    def __init__(self, max_bytes: int = MAX_BYTES) -> None:
        self.evicted: list[tuple[int, int]] = []
        self.held = HeldBytes[int](
            lambda: max_bytes, lambda holder, size_bytes: self.evicted.append((holder, size_bytes))
        )


def test_holders_below_limit_are_kept() -> None:
    buffers = Buffers()
    buffers.held.set(1, 60)
    buffers.held.set(2, 40)
    assert (buffers.evicted, buffers.held.total_bytes, buffers.held.free_bytes) == ([], 100, 0)


def test_first_holder_is_evicted_above_limit() -> None:
    buffers = Buffers()
    buffers.held.set(1, 30)
    buffers.held.set(2, 30)
    buffers.held.set(1, 50)  # keeps its position
    buffers.held.set(3, 60)
    assert buffers.evicted == [(1, 50)]
    assert (len(buffers.held), buffers.held.total_bytes) == (2, 90)


def test_holder_with_progress_is_evicted_last() -> None:
    buffers = Buffers()
    buffers.held.set(1, 30)
    buffers.held.set(2, 30)
    buffers.held.renew(1, 30)
    buffers.held.set(3, 60)
    assert buffers.evicted == [(2, 30)]


def test_only_holder_may_exceed_limit() -> None:
    buffers = Buffers()
    buffers.held.set(1, 5 * MAX_BYTES)
    assert buffers.evicted == []
    buffers.held.set(2, 1)
    assert buffers.evicted == [(1, 5 * MAX_BYTES)]


def test_released_bytes_are_not_counted() -> None:
    buffers = Buffers()
    buffers.held.set(1, 90)
    buffers.held.set(1, 0)
    buffers.held.renew(2, 0)
    assert (len(buffers.held), buffers.held.total_bytes, buffers.held.free_bytes) == (0, 0, MAX_BYTES)


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 5), st.integers(0, MAX_BYTES))))
def test_total_is_sum_of_holders_and_within_limit(steps: list[tuple[bool, int, int]]) -> None:
    buffers, expected = Buffers(), {}
    for is_renewed, holder, size_bytes in steps:
        (buffers.held.renew if is_renewed else buffers.held.set)(holder, size_bytes)
        expected[holder] = size_bytes
        for evicted, _ in buffers.evicted:
            del expected[evicted]
        buffers.evicted.clear()
        assert buffers.held.total_bytes == sum(expected.values()) <= MAX_BYTES
