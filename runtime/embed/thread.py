"""A coordinator on its own thread and event loop, for programs without a loop. Any thread may call it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ...actors.recorder.flight_recorder import RECORDS_KEPT
from ..common.context_forms import BlockingForm
from ..common.one_process import OfOneProcess
from ..common.thread_pool import ThreadPool
from ..engine.waiting import LoopClosed, is_of_parent, require_os_threads, run_on_loop, serve_threads
from ..settings.table import Settings
from .lifecycle import AsyncCoordinator, EndMode
from .reset_admin import RETURN_TIMEOUT_S
from .results import (
    CommittedOffset,
    CoordinatorStats,
    GroupDescription,
    GroupExplanation,
    GroupPage,
    GroupReset,
    Health,
    RebalanceRecord,
    ResetChange,
    ResetProgress,
    ResetTargets,
    Targets,
    TopicDescription,
    TopicPartition,
)

if TYPE_CHECKING:
    from prometheus_client.registry import Collector

    from ..member.blocking import BlockingMember
    from ..member.blocking_members import BlockingMembers
    from ..member.options import MemberArguments

HEALTH_TIMEOUT_S = 2.0
"""A coordinator whose loop does not answer for so long is not healthy."""

STOPPED = "this Coordinator has stopped: make another one"
NOT_RUNNING_YET = "this Coordinator is not running yet: use it inside `with`, or call start() first"
T = TypeVar("T")


class ThreadCoordinator(OfOneProcess, BlockingForm):
    """Returned by ``Coordinator.in_thread(...)``: the methods of ``Coordinator``, in a blocking form.

    Used once, as ``with Coordinator.in_thread(...) as coordinator``, or ``start`` and ``stop``.
    """

    def __init__(self, coordinator: AsyncCoordinator) -> None:
        self._coordinator = coordinator
        self._thread: threading.Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started: Future[None] = Future()
        self._ended: Future[None] = Future()
        self._stopping = asyncio.Event()
        self._serving: asyncio.Task[None] | None = None
        self._is_start_ended = False
        self._has_stopped = False
        self._members: BlockingMembers | None = None  # its modules are imported with the first member

    def start(self) -> None:
        """See ``Coordinator.start``. Ctrl-C, or ``stop`` in another thread, ends the start.

        Raises StartError; RuntimeError if gevent or eventlet has patched threads.
        """
        if self._thread is not None:
            raise RuntimeError("this Coordinator was started before: make another one")
        require_os_threads()
        self._thread = threading.Thread(target=self._run_thread, name="callboard-coordinator", daemon=True)
        self._thread.start()
        try:
            self._started.result()
        except BaseException:
            self._end_start(self._thread)
            raise

    def stop(self) -> None:
        """See ``Coordinator.stop``. From any thread but the coordinator's own. Does nothing in a forked process."""
        if self._thread is None:
            return
        if self._loop is None:
            self._end_start(self._thread)
            return
        if is_of_parent(self._loop):
            return
        self._check_other_thread()
        if not self._ended.done():
            if self._members is not None:
                self._members.check_caller(self._loop, "stop")
            with suppress(RuntimeError):  # another thread has stopped it
                self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        self._ended.result()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def run(self, coro: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine on the coordinator's loop, and wait for its result."""
        try:
            loop = self._running_loop()
        except RuntimeError:
            coro.close()
            raise
        try:
            return run_on_loop(coro, loop)
        except (CancelledError, LoopClosed) as error:
            raise RuntimeError(STOPPED) from error

    def _end_start(self, thread: threading.Thread) -> None:
        """Cancel the start, and wait until what it has opened is closed."""
        self._is_start_ended = True
        if self._serving is not None:
            with suppress(RuntimeError):  # it has failed, and the loop is closed
                self._serving.get_loop().call_soon_threadsafe(self._serving.cancel)
        thread.join()

    # On the coordinator's thread -------------------------------------------------------------------------------------

    def _run_thread(self) -> None:
        try:
            asyncio.run(self._serve_until_stopped())
        except asyncio.CancelledError:
            self._ended.set_result(None)
            if not self._started.done():
                self._started.set_exception(RuntimeError(STOPPED))
        except BaseException as error:
            if self._has_stopped:  # in `atexit` newer Pythons start no thread, which the end of a loop needs
                self._ended.set_result(None)
            elif self._started.done():
                self._ended.set_exception(error)
            else:
                self._ended.set_result(None)
                self._started.set_exception(error)
        else:
            self._ended.set_result(None)

    async def _serve_until_stopped(self) -> None:
        self._serving = asyncio.current_task()
        asyncio.get_running_loop().set_default_executor(ThreadPool(None, "callboard-blocking"))
        if self._is_start_ended:
            raise asyncio.CancelledError
        async with self._coordinator:
            self._loop = asyncio.get_running_loop()
            serve_threads(self._loop)
            self._started.set_result(None)
            await self._stopping.wait()
            if self._members is not None:
                await self._members.leave()
        self._has_stopped = True

    def _running_loop(self) -> asyncio.AbstractEventLoop:
        if self._loop is None:
            raise RuntimeError(NOT_RUNNING_YET)
        if self._stopping.is_set() or self._ended.done():
            raise RuntimeError(STOPPED)
        self._check_other_thread()
        return self._loop

    def _check_other_thread(self) -> None:
        if threading.current_thread() is self._thread:
            raise RuntimeError("a blocking call on the coordinator's own thread would deadlock: use `asynchronous`")

    # Methods of Coordinator ------------------------------------------------------------------------------------------

    @property
    def asynchronous(self) -> AsyncCoordinator:
        """The coordinator itself, for coroutines that ``run`` runs."""
        return self._coordinator

    @property
    def bootstrap(self) -> str:
        """The address for Kafka's clients, "host:port"."""
        if self._loop is None:
            raise RuntimeError(NOT_RUNNING_YET)
        return self._coordinator.bootstrap

    @property
    def settings(self) -> Settings:
        """The current settings."""
        return self._coordinator.settings

    def restart(self, end: EndMode = "stopped") -> None:
        """See ``Coordinator.restart``."""
        self.run(self._coordinator.restart(end))

    def loaded(self) -> None:
        """See ``Coordinator.loaded``."""
        self.run(self._coordinator.loaded())

    def member(self, group: str, **options: Unpack[MemberArguments]) -> BlockingMember:
        """A member of a group, in this process, for use in the calling thread. Options as ``Member``'s."""
        from ..member.blocking import BlockingMember
        from ..member.blocking_members import BlockingMembers

        loop = self._running_loop()
        if self._members is None:
            self._members = BlockingMembers()
        return self._members.add(BlockingMember(self._coordinator.connector, group, loop=loop, **options))

    def describe(self, group: str) -> GroupDescription:
        """See ``Coordinator.describe``."""
        return self.run(self._coordinator.describe(group))

    def explain(self, group: str, *, limit: int = 10) -> GroupExplanation:
        """See ``Coordinator.explain``."""
        return self.run(self._coordinator.explain(group, limit=limit))

    def rebalances(self, group: str, *, limit: int = RECORDS_KEPT) -> tuple[RebalanceRecord, ...]:
        """See ``Coordinator.rebalances``."""
        return self.run(self._coordinator.rebalances(group, limit=limit))

    def groups(
        self,
        *,
        states: Iterable[str] = (),
        types: Iterable[str] = (),
        prefix: str = "",
        limit: int | None = None,
        after: str = "",
    ) -> GroupPage:
        """See ``Coordinator.groups``."""
        return self.run(self._coordinator.groups(states=states, types=types, prefix=prefix, limit=limit, after=after))

    def groups_of_topic(self, topic: str) -> tuple[str, ...]:
        """See ``Coordinator.groups_of_topic``."""
        return self.run(self._coordinator.groups_of_topic(topic))

    def delete(self, group: str) -> None:
        """See ``Coordinator.delete``."""
        self.run(self._coordinator.delete(group))

    def remove_members(
        self,
        group: str,
        *,
        member_ids: Iterable[str] = (),
        instance_ids: Iterable[str] = (),
        reason: str | None = None,
    ) -> tuple[str, ...]:
        """See ``Coordinator.remove_members``."""
        return self.run(
            self._coordinator.remove_members(group, member_ids=member_ids, instance_ids=instance_ids, reason=reason)
        )

    def offsets(self, group: str) -> dict[TopicPartition, CommittedOffset]:
        """See ``Coordinator.offsets``."""
        return self.run(self._coordinator.offsets(group))

    def progress(self, group: str, resource: str) -> dict[int | str, CommittedOffset]:
        """See ``Coordinator.progress``."""
        return self.run(self._coordinator.progress(group, resource))

    def reset(self, group: str, targets: Targets) -> dict[TopicPartition, int]:
        """See ``Coordinator.reset``."""
        return self.run(self._coordinator.reset(group, targets))

    def evict_and_reset(
        self, group: str, targets: ResetTargets, *, reason: str = "", dry_run: bool = False
    ) -> GroupReset:
        """See ``Coordinator.evict_and_reset``."""
        return self.run(self._coordinator.evict_and_reset(group, targets, reason=reason, dry_run=dry_run))

    def undo_reset(self, change_id: str, *, reason: str = "", dry_run: bool = False) -> GroupReset:
        """See ``Coordinator.undo_reset``."""
        return self.run(self._coordinator.undo_reset(change_id, reason=reason, dry_run=dry_run))

    def resets(self, group: str) -> tuple[ResetChange, ...]:
        """See ``Coordinator.resets``."""
        return self.run(self._coordinator.resets(group))

    def reset_progress(self, change_id: str) -> ResetProgress:
        """See ``Coordinator.reset_progress``."""
        return self.run(self._coordinator.reset_progress(change_id))

    def watch_reset(self, change_id: str, timeout_s: float = RETURN_TIMEOUT_S) -> ResetProgress:
        """See ``Coordinator.watch_reset``."""
        return self.run(self._coordinator.watch_reset(change_id, timeout_s))

    def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """See ``Coordinator.delete_offsets``."""
        self.run(self._coordinator.delete_offsets(group, partitions))

    def topics(self, *, with_internal: bool = False) -> tuple[TopicDescription, ...]:
        """See ``Coordinator.topics``."""
        return self.run(self._coordinator.topics(with_internal=with_internal))

    def create_topic(self, name: str, partitions: int = 1) -> TopicDescription:
        """See ``Coordinator.create_topic``."""
        return self.run(self._coordinator.create_topic(name, partitions))

    def grow_topic(self, name: str, partitions: int) -> TopicDescription:
        """See ``Coordinator.grow_topic``."""
        return self.run(self._coordinator.grow_topic(name, partitions))

    def delete_topic(self, name: str) -> None:
        """See ``Coordinator.delete_topic``."""
        self.run(self._coordinator.delete_topic(name))

    def set(self, **settings: float | bool | str | None) -> None:
        """See ``Coordinator.set``."""
        self.run(self._coordinator.set(**settings))

    def stats(self) -> CoordinatorStats:
        """See ``Coordinator.stats``."""
        return self.run(_call(self._coordinator.stats))

    def health(self) -> Health:
        """See ``Coordinator.health``. Waits for two seconds at most."""
        checking = _call(self._coordinator.health)
        try:
            return run_on_loop(checking, self._running_loop(), HEALTH_TIMEOUT_S)
        except TimeoutError:
            return Health(False, f"the coordinator's event loop has not answered for {HEALTH_TIMEOUT_S:.0f} s")
        except (RuntimeError, CancelledError, LoopClosed) as error:
            checking.close()
            return Health(False, str(error) or STOPPED)

    def collector(self, lag_groups: Iterable[str] = ()) -> Collector:
        """See ``Coordinator.collector``."""
        return self._coordinator.collector(lag_groups)


async def _call(function: Callable[[], T]) -> T:
    return function()
