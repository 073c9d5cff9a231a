"""A hierarchical timing wheel for a million deadlines, without large cascades in one tick.

It has two levels. The lower level is a ring of ``PAGES`` pages with one slot per tick. A slot has a list only while it
has deadlines, so an empty slot costs 9 bytes. Later deadlines are in the upper level: one list per page, in a
``SortedDict`` by page number. So a deadline days away costs no more than a near one, and empty time costs nothing. When
the clock enters a new page, the page that comes into the range of the ring moves down, a few deadlines per call,
``PAGES - 1`` pages before the first of them is due. So each deadline moves at most once, and a page with half a million
deadlines moves in small steps. (A hierarchy that moves a whole bucket at its boundary, such as Varghese and Lauck's
scheme 7 or Kafka's ``TimingWheel``, has ticks of 20 to 50 ms at a million deadlines in Python. Here the longest takes
0.2 ms, with 250 deadlines due per tick.)

The lists are intrusive: the caller's object is itself the node of a doubly linked list. So adding and cancelling are a
few attribute assignments, without hashing or searching. A deadline can be removed without knowing its list. A page can
be emptied from its front while new deadlines are added at its end, so the order of scheduling is preserved. A wheel of
keys would need a map from key to due tick, and dicts as slots: 40 bytes per deadline if the slots are full, 300 if each
has one deadline. Here the links always take 16 bytes. The caller (``timers.py``) needs an object per deadline anyway.

Ticks are integers whose length the caller defines. The wheel reads no clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from sys import maxsize
from typing import Any

from sortedcontainers import SortedDict

# With ticks of 1 ms a page is 16 s and the ring 65 s. It covers at least the next 49 s, so sessions of the default 45 s
# never use the upper level. (With a ring of 8 s each costs 30 bytes and 0.4 us more.)
PAGE_BITS = 14
PAGES = 4
# Deadlines that a call moves down. Takes about 0.1 ms; enough for 750 deadlines per tick with one call per tick.
SPREAD = 256


class Timer:
    """The deadline ``name`` of ``owner``, due at a tick. In at most one wheel at a time.

    ``due_tick`` is valid while the deadline is scheduled. ``prev`` and ``next`` belong to the wheel.
    """

    __slots__ = ("due_tick", "name", "next", "owner", "prev")

    prev: Timer
    next: Timer

    def __init__(self, owner: Any, name: Hashable) -> None:
        self.owner = owner
        self.name = name
        self.due_tick = 0
        self.prev = self.next = UNLINKED


# ``prev`` and ``next`` of a deadline that is not scheduled. With None every step along a list would need a check.
UNLINKED = object.__new__(Timer)


def _empty_list() -> Timer:
    """The head of a circular list: a deadline that is never due."""
    head = Timer(None, None)
    head.prev = head.next = head
    return head


class TimingWheel:
    """Stores deadlines and returns them when they are due, ordered by due tick, then by the order of scheduling."""

    def __init__(self, now_tick: int = 0, page_bits: int = PAGE_BITS, spread: int = SPREAD) -> None:
        """``page_bits``: a page is ``2 ** page_bits`` ticks. ``spread``: deadlines that a call moves down."""
        self._now = now_tick  # no deadline is due before this tick; its slot may still get some
        self._bits = page_bits
        self._spread = spread
        self._mask = (PAGES << page_bits) - 1
        self._slots: list[Timer | None] = [None] * (PAGES << page_bits)  # without empty lists
        self._used = bytearray(PAGES << page_bits)  # 1 if the slot is not empty: find() searches all in 1 us
        self._pages: SortedDict[int, Timer] = SortedDict()  # without empty lists
        self._count = 0
        self._open = (now_tick >> page_bits) + PAGES  # the first page that is not entirely in the ring
        self._open_tick = self._open << page_bits  # its first tick

    def __len__(self) -> int:
        return self._count

    def __contains__(self, deadline: Timer) -> bool:
        return deadline.next is not UNLINKED

    def add(self, deadline: Timer, due_tick: int) -> None:
        """Schedule ``deadline``, or move it. If ``due_tick`` is in the past, it is due now."""
        if deadline.next is not UNLINKED:
            self.cancel(deadline)
        due_tick = max(due_tick, self._now)
        if due_tick < self._open_tick:
            head = self._slots[due_tick & self._mask] or self._begin_slot(due_tick)
            due_tick = head.due_tick  # shares one int per tick: saves 32 bytes per deadline
        else:
            head = self._page(due_tick >> self._bits)
            if head.prev.due_tick == due_tick:
                due_tick = head.prev.due_tick  # the same for equal timeouts, which are added in order
        deadline.due_tick = due_tick
        tail = head.prev
        deadline.prev = tail
        deadline.next = head
        tail.next = head.prev = deadline
        self._count += 1

    def cancel(self, deadline: Timer) -> bool:
        """Remove ``deadline``. False if it was not scheduled."""
        before, after = deadline.prev, deadline.next
        if after is UNLINKED:
            return False
        before.next = after
        after.prev = before
        deadline.prev = deadline.next = UNLINKED
        self._count -= 1
        if before is after:
            self._emptied(before, deadline.due_tick)
        return True

    def next_tick(self) -> int | None:
        """The tick at which to call ``advance``; None if there are no deadlines.

        Exact if the earliest deadline is in the ring. Otherwise a lower bound: the tick at which its page comes into
        the range of the ring. While a page moves down, the next tick. So a call may find nothing due, at most once per
        page and per ``spread`` deadlines of a page.
        """
        tick = self._first_in_ring()
        if not self._pages:
            return tick
        in_reach = max(self._now + 1, (self._first_page() - PAGES + 1) << self._bits)
        return in_reach if tick is None else min(tick, in_reach)

    def advance(self, now_tick: int, limit: int | None = None) -> list[Timer]:
        """Remove and return the deadlines that are due at ``now_tick`` or before.

        ``limit`` (at least 1) bounds the work of the call: it returns at most this many deadlines. After a stall that
        is longer than the ring it may return fewer, even none, because a page has to move first. The rest stays due,
        as ``next_tick`` shows. A call with an earlier tick than the previous call returns nothing.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; expected at least 1, or None for no limit")
        fired: list[Timer] = []
        room = maxsize if limit is None else limit
        while len(fired) < room:
            tick = self._first_in_ring()
            if tick is not None and tick < self._open_tick:
                if tick > now_tick:
                    self._skip_to(now_tick)
                    break
                self._now = tick
                self._take(tick, room - len(fired), fired)
            elif not self._turn_page(now_tick, self._spread if limit else maxsize):
                break
        self._lower(self._spread)
        return fired

    def check(self) -> None:
        """Raise AssertionError unless every deadline is in its slot or page. Visits all deadlines; for tests."""
        count = 0
        lists = {slot: head for slot, head in enumerate(self._slots) if head is not None}
        assert self._used.count(1) == len(lists), f"{self._used.count(1)} slots are marked, {len(lists)} have a list"
        for slot, head in lists.items():
            deadlines = _check_list(head)
            assert deadlines, f"the list of slot {slot} is empty"
            assert self._used[slot], f"slot {slot} has a list and is not marked as used"
            assert len({deadline.due_tick for deadline in deadlines}) == 1, f"slot {slot} holds more than one tick"
            for deadline in deadlines:
                assert deadline.due_tick & self._mask == slot, f"due at {deadline.due_tick}, in slot {slot}"
                assert self._now <= deadline.due_tick < self._open_tick + (1 << self._bits), "out of the ring's reach"
            count += len(deadlines)
        for page, head in self._pages.items():
            deadlines = _check_list(head)
            assert deadlines, f"page {page} is empty"
            assert page >= self._open, f"page {page} should be in the ring"
            assert all(deadline.due_tick >> self._bits == page for deadline in deadlines), f"wrong page: {page}"
            count += len(deadlines)
        assert count == self._count, f"{count} deadlines are in the lists, {self._count} were counted"
        assert 0 < self._open - (self._now >> self._bits) <= PAGES, f"page {self._open} is too near or too far"

    def _begin_slot(self, due_tick: int) -> Timer:
        """Create the list of a slot that has none."""
        slot = due_tick & self._mask
        head = self._slots[slot] = _empty_list()
        head.due_tick = due_tick
        self._used[slot] = 1
        return head

    def _page(self, page: int) -> Timer:
        """The list of a page in the upper level; created if needed."""
        head: Timer | None = self._pages.get(page)
        if head is None:
            head = self._pages[page] = _empty_list()
        return head

    def _first_page(self) -> int:
        """The first page in the upper level, which must not be empty."""
        page: int = self._pages.peekitem(0)[0]
        return page

    def _emptied(self, head: Timer, due_tick: int) -> None:
        """Remove an empty list. A page that moves down has lists in both levels."""
        slot = due_tick & self._mask
        if self._slots[slot] is head:
            self._end_slot(slot, head)
        else:
            del self._pages[due_tick >> self._bits]
            head.prev = head.next = UNLINKED

    def _end_slot(self, slot: int, head: Timer) -> None:
        """Remove the empty list of a slot. Its self-reference is cut, so that it needs no garbage collection."""
        self._slots[slot] = None
        self._used[slot] = 0
        head.prev = head.next = UNLINKED

    def _first_in_ring(self) -> int | None:
        """The first tick with deadlines in the ring."""
        start = self._now & self._mask
        slot = self._used.find(1, start)
        if slot < 0:
            slot = self._used.find(1, 0, start)
        return None if slot < 0 else self._now + ((slot - start) & self._mask)

    def _take(self, tick: int, room: int, fired: list[Timer]) -> None:
        """Move up to ``room`` deadlines from the front of the slot of ``tick`` to ``fired``."""
        slot = tick & self._mask
        head = self._slots[slot]
        assert head is not None
        deadline = head.next
        before = len(fired)
        while deadline is not head and room:
            following = deadline.next
            deadline.prev = deadline.next = UNLINKED
            fired.append(deadline)
            deadline = following
            room -= 1
        head.next = deadline
        deadline.prev = head
        self._count -= len(fired) - before
        if deadline is head:
            self._end_slot(slot, head)

    def _turn_page(self, now_tick: int, budget: int) -> bool:
        """Open the next page when the open ones are empty. False if nothing in it is due or it needs more calls."""
        if self._first_in_ring() is not None:
            start = self._open_tick
        elif self._pages:
            start = self._first_page() << self._bits
        else:
            start = maxsize
        if start > now_tick:
            self._skip_to(now_tick)
            return False
        self._skip_to(start - 1)  # one before, so that next_tick returns ``start``
        self._lower(budget)
        return self._open_tick > start

    def _skip_to(self, tick: int) -> None:
        """Advance the clock over empty time. Never moves it back."""
        self._now = max(self._now, tick)

    def _lower(self, budget: int) -> None:
        """Move down up to ``budget`` deadlines of pages in range. A page is open when it is entirely in the ring."""
        page = self._now >> self._bits
        self._open = max(self._open, page)
        while self._open < page + PAGES:
            head = self._pages.get(self._open)
            if head is not None:
                budget -= self._lower_list(head, budget)
                if head.next is not head:
                    break
                del self._pages[self._open]
                head.prev = head.next = UNLINKED
            self._open += 1
        self._open_tick = self._open << self._bits

    def _lower_list(self, head: Timer, budget: int) -> int:
        """Move up to ``budget`` deadlines from the front of a page's list to their slots. Returns the number moved."""
        slots, mask = self._slots, self._mask
        remaining = budget
        deadline = head.next
        while deadline is not head and remaining:
            following = deadline.next
            due_tick = deadline.due_tick
            target = slots[due_tick & mask] or self._begin_slot(due_tick)
            deadline.due_tick = target.due_tick
            tail = target.prev
            deadline.prev = tail
            deadline.next = target
            tail.next = target.prev = deadline
            deadline = following
            remaining -= 1
        head.next = deadline
        deadline.prev = head
        return budget - remaining


def _check_list(head: Timer) -> list[Timer]:
    """The deadlines of a list, front to end. Raises AssertionError if a link is broken."""
    deadlines = []
    deadline = head
    while deadline.next is not head:
        assert deadline.next.prev is deadline, f"the link back from {deadline.next.name} is broken"
        deadline = deadline.next
        deadlines.append(deadline)
    assert head.prev is deadline, "the link from the head to the end is broken"
    return deadlines
