"""What a member holds at the moment, how it gets into the user's hands, and how it is taken out of them again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from typing import Any

from .work import Owner, Place, Share, Stage, Work, unfinished

log = logging.getLogger("callboard.member")


class Holdings:
    """Shares by place, and the Work that the user has. The protocol's side tells it what comes and what goes."""

    __slots__ = (
        "_end",
        "_failure",
        "_has_lost",
        "_has_news",
        "_lingering",
        "_news",
        "_owner",
        "_work",
        "generation",
        "held",
    )

    def __init__(self, owner: Owner) -> None:
        self.held: dict[Place, Share] = {}
        self.generation = -1
        self._owner = owner
        self._work: Work | None = None  # the last that was given to the user
        self._news = asyncio.Event()
        self._has_news = False
        self._has_lost = False  # something, since the user was last told of news
        self._lingering: set[asyncio.Future[Any]] = set()  # what still runs on shares that are gone
        self._failure: BaseException | None = None  # of something that ran on a share; told once
        self._end: BaseException | None = None  # why there will never be work again

    async def next_work(self) -> Work:
        """What is held, as soon as it is another than what was given out last. Raises what has failed."""
        while True:
            if self._failure is not None:
                failure, self._failure = self._failure, None
                raise failure
            if self._end is not None:
                raise self._end
            if self._has_news:
                break
            self._news.clear()
            await self._news.wait()
        self._has_news = False
        before = set() if self._work is None else set(self._work.shares)
        shares = tuple(sorted(self.held.values(), key=_order))
        kept = tuple(share for share in shares if share in before)
        self._work = Work(self._owner, self.generation, shares, kept)
        return self._work

    def acquire(self, shares: Sequence[Share], generation: int) -> None:
        """These are held from now on. The user will hear of it, unless nothing has changed since the last time."""
        if not shares and not self._has_lost and self.generation >= 0:
            return
        self._has_lost = False
        self.held.update((share.place, share) for share in shares)
        self.generation = generation
        self._end_work()
        self._has_news = True
        self._news.set()

    async def hand_back(self, places: Iterable[Place], until_s: float) -> None:
        """Stop what runs on these shares, and wait for its end, at most ``until_s`` on the loop's clock."""
        shares = [self.held[place] for place in places if place in self.held]
        if not shares:
            return
        self._has_lost = True
        for share in shares:
            share.move_to(Stage.WANTED_BACK)
        pending = unfinished(shares) | self._end_work()
        await self._wait(pending, until_s, "handed back")
        for share in shares:
            share.move_to(Stage.GONE)
            if self.held.get(share.place) is share:
                del self.held[share.place]

    def lose_all(self) -> None:
        """Nothing is held any more, from this moment."""
        shares = tuple(self.held.values())
        self.held = {}
        for share in shares:
            share.move_to(Stage.GONE)
        if shares:
            self._has_lost = True
            self._lingering |= unfinished(shares) | self._end_work()

    async def settle(self, until_s: float) -> None:
        """Wait for what still runs on shares that are gone, so that nothing runs twice on one that comes back."""
        pending = {one for one in self._lingering if not one.done()}
        self._lingering = set()
        await self._wait(pending, until_s, "lost")

    async def outlast(self, until_s: float) -> None:
        """The same, at most so long, and whoever calls ``settle`` later waits on."""
        self._lingering = {one for one in self._lingering if not one.done()}
        if self._lingering:
            await asyncio.wait(self._lingering, timeout=max(until_s - asyncio.get_running_loop().time(), 0))

    def fail(self, failure: BaseException) -> None:
        """Something that ran on a share has failed: the user's work ends, and hears why."""
        if self._failure is None:
            self._failure = failure
        else:
            log.error("something more has failed on the work of a member", exc_info=failure)
        self._end_work()
        self._news.set()

    def is_run_by(self, worker: object) -> bool:
        """Whether this task or thread works on what is held, or was."""
        return (
            worker in self._lingering
            or (self._work is not None and self._work.is_run_by(worker))
            or any(worker in share.tasks for share in self.held.values())
        )

    def tell_failures(self) -> None:
        """At the end: what nobody has heard of by ``next_work``."""
        if self._failure is not None:
            log.error("something has failed while a member handed its work back", exc_info=self._failure)

    def end(self, error: BaseException) -> None:
        """There will be no work any more."""
        self.lose_all()
        self._end = self._end or error
        self._news.set()

    def _end_work(self) -> set[asyncio.Future[Any]]:
        """The user's Work is over; what of it has not ended yet."""
        if self._work is None:
            return set()
        self._work.end()
        return self._work.unfinished()

    async def _wait(self, pending: set[asyncio.Future[Any]], until_s: float, what: str) -> None:
        if not pending:
            return
        allowed_s = max(until_s - asyncio.get_running_loop().time(), 0)
        _, late = await asyncio.wait(pending, timeout=allowed_s)
        if late:
            log.warning(
                "work that was %s has not ended within %.1f s, and is given up: %s; await what can be cancelled, and "
                "let blocking code look at share.is_over",
                what,
                allowed_s,
                ", ".join(sorted(map(repr, late))),
            )


def _order(share: Share) -> tuple[str, bool, int | str]:
    return share.resource, isinstance(share.name, str), share.name
