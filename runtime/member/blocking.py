"""The blocking twin of ``Member``, for programs of threads: the protocol runs on an event loop beside.

A thread cannot be cancelled. So a share says that it is over, and whoever works on it must look, or wait for that:
``while not share.is_over: ...``. Hand-backs wait for the end of ``with work:``, as long as the rebalance allows.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from concurrent.futures import CancelledError
from contextlib import suppress
from random import Random
from types import TracebackType
from typing import Any, Self, TypeVar, Unpack

from ..waiting import LoopClosed, wait_for
from .channel import Door
from .errors import HasLeft, MemberError, WorkLost
from .member import Member
from .terms import MemberArguments
from .work import Body, Progress, Share, Stage, Work

T = TypeVar("T")

ENDED = "the event loop of this member has ended, and with it the member"


class Runner:
    """Runs coroutines on a loop of another thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop

    def run(self, work: Coroutine[Any, Any, T], timeout_s: float | None = None) -> T:
        """Wait for a result. Raises TimeoutError, and MemberError when the loop has ended."""
        try:
            future = asyncio.run_coroutine_threadsafe(work, self._loop)
        except RuntimeError as error:
            work.close()
            raise MemberError(ENDED) from error
        try:
            return wait_for(future, self._loop, timeout_s)
        except (CancelledError, LoopClosed) as error:
            raise MemberError(ENDED) from error
        finally:
            future.cancel()  # of use only when we are interrupted or out of time


class BlockingShare:
    """A ``Share`` in a thread's hands. ``over`` and ``lost`` are threads' events."""

    def __init__(self, share: Share, runner: Runner) -> None:
        self.resource = share.resource
        self.name = share.name
        self.token = share.token
        self.over = threading.Event()
        self.lost = threading.Event()
        self._share = share
        self._runner = runner
        share.watch = self._moved
        self._moved(share.stage)

    def __repr__(self) -> str:
        return repr(self._share)

    @property
    def position(self) -> int | None:
        return self._share.position

    @property
    def note(self) -> str:
        return self._share.note

    @property
    def is_over(self) -> bool:
        """Whether to stop: it is being handed back, or is lost."""
        return self._share.is_over

    @property
    def is_lost(self) -> bool:
        """Whether nothing can be committed any more."""
        return self._share.is_lost

    def commit(self, position: int, note: str = "") -> Progress:
        """See ``Share.commit``."""
        return self._runner.run(self._share.commit(position, note))

    def _moved(self, stage: Stage) -> None:
        if stage is not Stage.HELD:
            self.over.set()
        if stage is Stage.GONE:
            self.lost.set()


class BlockingWork:
    """A ``Work`` in a thread's hands. ``with work:`` says how long it is worked on; ``lost`` is set when it is over."""

    def __init__(self, work: Work, shares: dict[Share, BlockingShare], runner: Runner) -> None:
        self.generation = work.generation
        self.shares = tuple(shares[share] for share in work.shares)
        self.acquired = tuple(shares[share] for share in work.acquired)
        self.kept = tuple(shares[share] for share in work.kept)
        self.lost = threading.Event()
        self._work = work
        self._runner = runner
        self._body: Body | None = None

    @property
    def is_over(self) -> bool:
        return self._work.is_over

    def share(self, resource: str, name: int | str) -> BlockingShare:
        """One of the shares. Raises KeyError for what this work does not have."""
        return self.shares[self._work.shares.index(self._work.share(resource, name))]

    def commit(self, share: BlockingShare, position: int, note: str = "") -> Progress:
        """See ``Share.commit``."""
        return share.commit(position, note)

    def __enter__(self) -> Self:
        self._body = self._runner.run(self._enter(threading.current_thread()))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        assert self._body is not None, "entered before"
        self._runner.run(self._leave(self._body))
        return isinstance(error, WorkLost) and self._work.is_over

    async def _enter(self, worker: threading.Thread) -> Body:
        return self._work.enter(self.lost.set, worker)

    async def _leave(self, body: Body) -> None:
        self._work.leave(body)


class BlockingMember:
    """``Member`` for threads: ``with``, then ``for work in member.assignments(): with work: ...``.

    ``loop``: runs in another thread, for as long as the member is used.
    """

    def __init__(
        self,
        door: Door,
        group: str,
        *,
        loop: asyncio.AbstractEventLoop,
        random: Random | None = None,
        **options: Unpack[MemberArguments],
    ) -> None:
        self._runner = Runner(loop)
        self._member = Member(door, group, random=random, **options)
        self._shares: dict[Share, BlockingShare] = {}

    @property
    def group_id(self) -> str:
        return self._member.group_id

    @property
    def member_id(self) -> str:
        """As the coordinator knows it; empty while it has given none."""
        return self._member.member_id

    @property
    def generation(self) -> int:
        """The one that this member is in, -1 for none."""
        return self._member.generation

    @property
    def is_leader(self) -> bool:
        return self._member.is_leader

    @property
    def shares(self) -> tuple[Share, ...]:
        """What is held at this moment, to look at; ``next_work`` has what can be worked on."""
        return self._member.shares

    def __enter__(self) -> Self:
        self._runner.run(self._member.__aenter__())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    def leave(self) -> None:
        """Hand the work back and leave the group. Raises RuntimeError inside of ``with work:``, whose end it awaits."""
        self._runner.run(self._leave(threading.current_thread()))

    async def _leave(self, caller: threading.Thread) -> None:
        if self._member.is_run_by(caller):
            raise RuntimeError("leave() waits for the end of the `with work:` that it is called in: call it behind")
        await self._member.leave()

    def assignments(self) -> Iterator[BlockingWork]:
        """A work each time what is held has changed; it ends when the member leaves.

        Raises Fenced and MemberError when the member cannot go on.
        """
        with suppress(HasLeft):
            while True:
                work = self.next_work()
                yield work

    def next_work(self, timeout_s: float | None = None) -> BlockingWork:
        """The next of ``assignments``. Raises TimeoutError."""
        return self._runner.run(self._next_work(), timeout_s)

    async def _next_work(self) -> BlockingWork:
        work = await self._member.next_work()
        self._shares = {share: self._shares.get(share) or BlockingShare(share, self._runner) for share in work.shares}
        return BlockingWork(work, self._shares, self._runner)
