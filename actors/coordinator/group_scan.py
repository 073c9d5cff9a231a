"""A walk through all groups, those that sleep too: a few at a time, so that a million of them hold up nobody.

Who is asked must have answered, with its records durable, before the next are: a million groups that all have something
to do neither flood the log nor come into memory together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import islice
from typing import Any

import pykka

from ..base import ActorRef
from ..messages import ExpireOffsets, ForgetTopics, Walked

LOOKS = 1000
"""Groups that are looked at in one turn: about a millisecond."""

ASKED = 50
"""Groups that are asked at once."""


class Done:
    """The place for the answer of a group that was asked: whatever it is, the walk goes on."""

    __slots__ = ("_owner", "_walk")

    def __init__(self, owner: ActorRef, walk: Walk) -> None:
        self._owner = owner
        self._walk = walk

    def set(self, value: Any = None) -> None:
        with suppress(pykka.ActorDeadError):  # all stop
            self._owner.tell(Walked(self._walk))

    def set_exception(self, exc_info: Any = None) -> None:
        self.set()


class Walk:
    """Belongs to the coordinator, ``owner``, which passes on ``Walked`` and ``WalkOn``.

    ``find`` gives a group that is to be asked, awake; None for one that has nothing to do, which costs a microsecond.
    """

    def __init__(
        self,
        message: ExpireOffsets | ForgetTopics,
        group_ids: Iterable[str],
        find: Callable[[str], ActorRef | None],
        owner: ActorRef,
    ) -> None:
        self.is_over = False
        self._message = message
        self._left = iter(group_ids)
        self._find = find
        self._owner = owner
        self._unanswered = 0

    def answered(self) -> bool:
        """A group has answered. True if it is time for the next slice."""
        self._unanswered -= 1
        return not self._unanswered

    def go_on(self) -> bool:
        """The next slice. True if one more is to follow; else answers come first, or it was the last."""
        looked = 0
        for group_id in islice(self._left, LOOKS):
            looked += 1
            ref = self._find(group_id)
            if ref is not None:
                self._unanswered += 1
                ref.post(self._message, Done(self._owner, self))
                if self._unanswered == ASKED:
                    return False
        self.is_over = looked < LOOKS and not self._unanswered
        return not (self.is_over or self._unanswered)
