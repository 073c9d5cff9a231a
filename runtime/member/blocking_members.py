"""BlockingMembers: the members that use the loop of one thread. They leave before that loop ends."""

from __future__ import annotations

import asyncio
import logging
import threading
from concurrent.futures import CancelledError
from weakref import WeakSet

from ..engine.waiting import LoopClosed, run_on_loop
from .blocking import BlockingMember

log = logging.getLogger("callboard.member")


class BlockingMembers:
    """``add`` and ``check_caller`` may be called in any thread, ``leave`` on the loop."""

    __slots__ = ("_lock", "_members")

    def __init__(self) -> None:
        self._members: WeakSet[BlockingMember] = WeakSet()
        self._lock = threading.Lock()

    def add(self, member: BlockingMember) -> BlockingMember:
        with self._lock:
            self._members.add(member)
        return member

    def check_caller(self, loop: asyncio.AbstractEventLoop, call: str) -> None:
        """Raises RuntimeError if the calling thread works on a shard: ``leave`` would wait for its end."""
        try:
            is_working = run_on_loop(self._have_work_in(threading.current_thread()), loop)
        except (CancelledError, LoopClosed):
            return
        if is_working:
            raise RuntimeError(
                f"{call}() waits for the end of the handler or `with assignment:` that it is called in: call it after "
                f"that, or in another thread"
            )

    async def leave(self) -> None:
        """All members leave, concurrently. Waits for the work on their shards, at most for the rebalance timeout."""
        results = await asyncio.gather(*(member.leave_on_loop() for member in self._listed()), return_exceptions=True)
        for error in filter(None, results):
            log.warning("a member could not leave: %r", error)

    async def _have_work_in(self, thread: threading.Thread) -> bool:
        return any(member.has_work_in(thread) for member in self._listed())

    def _listed(self) -> list[BlockingMember]:
        with self._lock:
            return list(self._members)
