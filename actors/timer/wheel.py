"""The hierarchical timing wheel: a million deadlines, none early, none lost, no tick that pays for a big cascade.

Two levels. The lower one is a ring of ``PAGES`` pages, one slot for each tick, in which a list begins when it gets its
first deadline and ends with its last: so a large ring costs 9 bytes a slot. What is due later than the ring reaches
lies in the upper level: one list for each page, found through a ``SortedDict`` of page numbers, so that a deadline days
away costs no more than a near one and empty time costs nothing. Each time that the clock enters a new page, the page
that has come into reach moves down, a few deadlines a call, ``PAGES - 1`` pages before the first of them is due. So
each deadline moves at most once, and a page with half a million deadlines comes down in steps nobody notices.
(A hierarchy that moves a whole bucket at its boundary, as Varghese and Lauck's scheme 7 and Kafka's ``TimingWheel`` do,
has ticks of 20 to 50 ms at a million deadlines in Python; here the worst took 0.2 ms, at 250 due a tick.)

The deadlines are intrusive: the object that the caller holds is itself the link of a doubly linked list. Then adding
and cancelling are a few attribute stores, with no hash and no search; a deadline leaves its list without knowing which
list that is; and a page can be taken down from its front while new ones join its end, so the order of filing is kept.
A wheel of keys would need a map from key to due tick, and its slots would have to be dicts: 40 bytes a deadline when
they are full and 300 when each holds one. Here the links are 16 bytes, full or not. The caller (``timers.py``) needs an
object for each deadline anyway.

Ticks are whole numbers; what a tick is, the caller decides. The wheel reads no clock.
"""

from __future__ import annotations

from collections.abc import Hashable
from sys import maxsize
from typing import Any

from sortedcontainers import SortedDict

# At 1 ms a tick a page is 16 s and the ring 65 s: it reaches 49 s ahead at least, so that sessions of the default 45 s
# never touch the upper level. (A ring of 8 s cost them 30 bytes and 0.4 us more each.)
PAGE_BITS = 14
PAGES = 4
# Deadlines that a call moves down. About 0.1 ms; enough for 750 deadlines a tick when each tick is a call.
SPREAD = 256


class Timer:
    """Something that is due at a tick: ``name`` says what, ``owner`` whom to tell. In at most one wheel at a time.

    ``due_tick`` is right while the deadline is filed. ``prev`` and ``next`` belong to the wheel.
    """

    __slots__ = ("due_tick", "name", "next", "owner", "prev")

    prev: Timer
    next: Timer

    def __init__(self, owner: Any, name: Hashable) -> None:
        self.owner = owner
        self.name = name
        self.due_tick = 0
        self.prev = self.next = UNLINKED


# What a deadline that is not filed points to; with None each step along a list would need a check.
UNLINKED = object.__new__(Timer)


def _empty_list() -> Timer:
    """A circular list's head: a deadline that is never due."""
    head = Timer(None, None)
    head.prev = head.next = head
    return head


class TimingWheel:
    """Files deadlines by tick and gives them back when they are due, in order of due tick, then of filing."""

    def __init__(self, now_tick: int = 0, page_bits: int = PAGE_BITS, spread: int = SPREAD) -> None:
        """``page_bits``: a page is ``2 ** page_bits`` ticks. ``spread``: deadlines that a call moves down."""
        self._now = now_tick  # nothing before this tick is filed; this tick's slot may still get some
        self._bits = page_bits
        self._spread = spread
        self._mask = (PAGES << page_bits) - 1
        self._slots: list[Timer | None] = [None] * (PAGES << page_bits)  # never an empty list
        self._used = bytearray(PAGES << page_bits)  # 1 where the slot is not empty: find() looks at all in 1 us
        self._pages: SortedDict[int, Timer] = SortedDict()  # never an empty list
        self._count = 0
        self._open = (now_tick >> page_bits) + PAGES  # the first page that is not wholly in the ring; a part may be
        self._open_tick = self._open << page_bits  # its first tick

    def __len__(self) -> int:
        return self._count

    def __contains__(self, deadline: Timer) -> bool:
        return deadline.next is not UNLINKED

    def add(self, deadline: Timer, due_tick: int) -> None:
        """File ``deadline``, or move it if it is filed. What was due before now is due now: the next call gives it."""
        if deadline.next is not UNLINKED:
            self.cancel(deadline)
        due_tick = max(due_tick, self._now)
        if due_tick < self._open_tick:
            head = self._slots[due_tick & self._mask] or self._begin_slot(due_tick)
            due_tick = head.due_tick  # one int for all that are due then: 32 bytes a deadline less
        else:
            head = self._page(due_tick >> self._bits)
            if head.prev.due_tick == due_tick:
                due_tick = head.prev.due_tick  # the same for timeouts of one length, which come in order of due
        deadline.due_tick = due_tick
        tail = head.prev
        deadline.prev = tail
        deadline.next = head
        tail.next = head.prev = deadline
        self._count += 1

    def cancel(self, deadline: Timer) -> bool:
        """Take ``deadline`` out. False when it was not filed."""
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
        """The tick to call ``advance`` at; None when nothing is filed.

        Exact when the earliest deadline is in the ring, else a lower bound: the tick at which its page comes into
        reach. While a page moves down it is the next tick. So the call may find nothing due, at worst once for each
        page, and for each ``spread`` deadlines that lie in one.
        """
        tick = self._first_in_ring()
        if not self._pages:
            return tick
        in_reach = max(self._now + 1, (self._first_page() - PAGES + 1) << self._bits)
        return in_reach if tick is None else min(tick, in_reach)

    def advance(self, now_tick: int, limit: int | None = None) -> list[Timer]:
        """Take out what is due at ``now_tick`` or before.

        With ``limit`` (at least 1) the call's work is bounded: it gives that many at most, and after a stall that was
        longer than the ring it may give fewer, even none, because a page had to move first. The rest stays due, and
        ``next_tick`` says so. An earlier tick than that of the call before gives nothing and does no harm.
        """
        if limit is not None and limit < 1:
            raise ValueError(f"limit is {limit}; expected at least 1, or None to take out everything that is due")
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
        """Raise AssertionError unless every deadline is where it belongs. Costs a walk through all; for tests."""
        count = 0
        lists = {slot: head for slot, head in enumerate(self._slots) if head is not None}
        assert self._used.count(1) == len(lists), f"{self._used.count(1)} slots are used, {len(lists)} have a list"
        for slot, head in lists.items():
            filed = _walk(head)
            assert filed, f"the list of slot {slot} is empty"
            assert self._used[slot], f"slot {slot} has a list and is not used"
            assert len({deadline.due_tick for deadline in filed}) == 1, f"slot {slot} holds more than one tick"
            for deadline in filed:
                assert deadline.due_tick & self._mask == slot, f"due at {deadline.due_tick}, in slot {slot}"
                assert self._now <= deadline.due_tick < self._open_tick + (1 << self._bits), "out of the ring's reach"
            count += len(filed)
        for page, head in self._pages.items():
            filed = _walk(head)
            assert filed, f"page {page} is empty"
            assert page >= self._open, f"page {page} should be in the ring"
            assert all(deadline.due_tick >> self._bits == page for deadline in filed), f"a stranger in page {page}"
            count += len(filed)
        assert count == self._count, f"{count} are filed, {self._count} were counted"
        assert 0 < self._open - (self._now >> self._bits) <= PAGES, f"page {self._open} is too near or too far"

    def _begin_slot(self, due_tick: int) -> Timer:
        """A list for a slot that has none."""
        slot = due_tick & self._mask
        head = self._slots[slot] = _empty_list()
        head.due_tick = due_tick
        self._used[slot] = 1
        return head

    def _page(self, page: int) -> Timer:
        """The list of a page in the upper level."""
        head: Timer | None = self._pages.get(page)
        if head is None:
            head = self._pages[page] = _empty_list()
        return head

    def _first_page(self) -> int:
        """The first page that has a list in the upper level; there must be one."""
        page: int = self._pages.peekitem(0)[0]
        return page

    def _emptied(self, head: Timer, due_tick: int) -> None:
        """The list that ``head`` heads has lost its last deadline. A page that moves down has lists in both levels."""
        slot = due_tick & self._mask
        if self._slots[slot] is head:
            self._end_slot(slot, head)
        else:
            del self._pages[due_tick >> self._bits]
            head.prev = head.next = UNLINKED

    def _end_slot(self, slot: int, head: Timer) -> None:
        """Its list is empty. It points to itself, and would lie about until the garbage collector comes."""
        self._slots[slot] = None
        self._used[slot] = 0
        head.prev = head.next = UNLINKED

    def _first_in_ring(self) -> int | None:
        """The first tick that has deadlines in the ring."""
        start = self._now & self._mask
        slot = self._used.find(1, start)
        if slot < 0:
            slot = self._used.find(1, 0, start)
        return None if slot < 0 else self._now + ((slot - start) & self._mask)

    def _take(self, tick: int, room: int, fired: list[Timer]) -> None:
        """Take out up to ``room`` deadlines from the front of the slot of ``tick``."""
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
        """Nothing is left in the open pages: open the next. False when nothing in it is due, or it needs more calls."""
        if self._first_in_ring() is not None:
            start = self._open_tick
        elif self._pages:
            start = self._first_page() << self._bits
        else:
            start = maxsize
        if start > now_tick:
            self._skip_to(now_tick)
            return False
        self._skip_to(start - 1)  # one before: so next_tick, which says the next tick, says now
        self._lower(budget)
        return self._open_tick > start

    def _skip_to(self, tick: int) -> None:
        """Move the clock over empty time. It never goes back."""
        self._now = max(self._now, tick)

    def _lower(self, budget: int) -> None:
        """Move down up to ``budget`` deadlines of the pages in reach. A page is open when none of it is left above."""
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
        """Move up to ``budget`` deadlines from the front of a page's list to their slots; how many did."""
        slots, mask = self._slots, self._mask
        left = budget
        deadline = head.next
        while deadline is not head and left:
            following = deadline.next
            due_tick = deadline.due_tick
            target = slots[due_tick & mask] or self._begin_slot(due_tick)
            deadline.due_tick = target.due_tick
            tail = target.prev
            deadline.prev = tail
            deadline.next = target
            tail.next = target.prev = deadline
            deadline = following
            left -= 1
        head.next = deadline
        deadline.prev = head
        return budget - left


def _walk(head: Timer) -> list[Timer]:
    """The deadlines of a list, front to end, with a look at every link."""
    found = []
    deadline = head
    while deadline.next is not head:
        assert deadline.next.prev is deadline, f"the link back from {deadline.next.name} is broken"
        deadline = deadline.next
        found.append(deadline)
    assert head.prev is deadline, "the link from the head to the end is broken"
    return found
