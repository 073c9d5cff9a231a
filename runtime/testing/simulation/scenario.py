"""Sim: the interface of a scenario: a coordinator that can crash, a network, members, and checkers.

A scenario is ``async def scenario(sim: Sim) -> None``. It runs on a virtual loop, whose time jumps to the next event
and whose random choices depend on the seed. Its own random numbers should come from ``sim.random``. When it returns,
all faults end, the coordinator is restarted once more, and its state is checked.
"""

from __future__ import annotations

import asyncio
import errno
import random
from collections.abc import Awaitable, Callable, Collection, Coroutine
from contextlib import AbstractContextManager
from math import inf
from typing import Any, TypeVar, Unpack

from ....actors.errors import ErrorCode
from ....actors.messages import OffsetFetch
from ...member.channel import ChannelLost
from ...member.member import Member
from ...member.options import CLASSIC, MemberArguments, make_options
from ...member.shards import Shard
from ...settings.table import Settings, Sync
from ..disk.faulty import Fault
from .checkers import AnswerChecker, GenerationChecker, Violation
from .compactions import DATA_FOLDER
from .consumer_members import ConsumerMemberChecker
from .fault_draw import FaultDraw
from .group_events import GroupEventChecker, check_groups
from .history import History
from .holders import Hold, HolderChecker, Resource
from .leases import LeaseChecker
from .loop import Process, VirtualLoop, current_process
from .losses import LossChecker
from .network import Host, Network, SimulatedConnector
from .registers import RegisterChecker
from .resets import ResetChecker
from .sessions import SessionChecker
from .simulated_coordinator import CoordinatorHooks, CoordinatorIncarnation, SimulatedCoordinator
from .spawned import Program, Spawned, SpawnedProcesses
from .static_members import StaticMemberChecker

T = TypeVar("T")

THAW_GRACE_S = 1.0  # within this time, and a heartbeat interval, a thawed process has stopped work that it has lost
SUSPENDED_CHANCE = 0.5  # that a frozen process was on a suspended machine, where timers stand still
SYNC_S = 0.001  # a power loss may happen during a sync that is due
CONDITION_INTERVAL_S = 0.25  # between two checks of a condition
OVERDUE_CHECK_INTERVAL_S = 2.0  # between two checks for overdue requests
CHECKER_HOST = "judge"
FETCH_ATTEMPTS = 1000  # of fetching all offsets at the end; open transactions must time out before
FETCH_RETRY_S = 1.0
OFFSETS_PARTITIONS = 3
SEGMENT_BYTES = 700  # small, so that segments roll and compaction has work

Scenario = Callable[["Sim"], Coroutine[Any, Any, None]]


def simulation_settings(**changes: Any) -> Settings:
    """Settings for simulations: few partitions, small segments, no initial delay."""
    defaults = {
        "group_initial_rebalance_delay_ms": 0,
        "offsets_topic_num_partitions": OFFSETS_PARTITIONS,
        "transaction_state_log_num_partitions": 1,
        "offsets_topic_segment_bytes": SEGMENT_BYTES,
    }
    return Settings(**{**defaults, **changes})


class Sim:
    """One run of a scenario. ``only``: the numbers of permitted faults; None: all."""

    def __init__(
        self, loop: VirtualLoop, only: Collection[int] | None = None, settings: Settings | None = None
    ) -> None:
        seed = f"{loop.seed}"
        self.loop = loop
        self.random = random.Random(f"{seed}/scenario")
        self.failed: asyncio.Future[None] = loop.create_future()
        self.history = History(loop)
        self.faults = FaultDraw(only, self.history.tell)
        self.network = Network(loop, random.Random(f"{seed}/network"), self.faults, self.history)
        self.generations = GenerationChecker(self.fail, self._is_loading)
        self.answers = AnswerChecker(self.fail, loop.time)
        self.registers = RegisterChecker()
        self.losses = LossChecker(self.fail)
        self.holders = HolderChecker(self.fail, self.history.tell)
        self.sessions = SessionChecker(
            self.fail, loop.time, self.network.reading.read_since_s, self._consumer_session_timeout_ms
        )
        self.leases = LeaseChecker(self.fail, loop.time)
        self.static_members = StaticMemberChecker(self.fail)
        self.history.listeners += [self.generations, self.answers, self.registers, self.losses]
        self.history.listeners += [GroupEventChecker(self.fail), self.sessions, self.leases, self.static_members]
        self.history.listeners += [ConsumerMemberChecker(self.fail, self._topic_id), ResetChecker(self.fail)]
        self.coordinator = SimulatedCoordinator(
            loop,
            seed,
            settings or simulation_settings(),
            self.history,
            CoordinatorHooks(self._coordinator_started, self._coordinator_ended, self.network.reading.when_read),
        )
        self._processes: dict[str, Process] = {}
        self.spawned = SpawnedProcesses()
        self._thaw_draw = random.Random(f"{seed}/thaw")
        self._interval_max_s = 0.0  # the longest heartbeat interval of a member

    # The coordinator -------------------------------------------------------------------------------------------------

    def _coordinator_started(self, incarnation: CoordinatorIncarnation) -> None:
        power_lost_s, self.coordinator.power_lost_s = self.coordinator.power_lost_s, None
        if self.coordinator.setup.sync != "always" and power_lost_s is not None:
            self._check_losses(power_lost_s)
        self.generations.restarted()
        self.answers.restarted()
        self.network.server_started(incarnation)

    def _check_losses(self, power_lost_s: float) -> None:
        """Check the losses of a power failure; the surviving state is the reference from now on."""
        settings, groups = self.coordinator.setup.settings, self.coordinator.groups()
        lasts_s = settings.log_flush_interval_ms / 1000 if self.coordinator.setup.sync == "interval" else float("inf")
        self.losses.check_survivors(groups, power_lost_s - lasts_s - SYNC_S)
        violation = self.registers.reset(groups)
        if violation:
            self.fail(violation)
        self.generations.forget_newer(groups)
        self.static_members.forget()

    def _is_loading(self) -> bool:
        incarnation = self.coordinator.current
        return incarnation is not None and incarnation.node.is_loading

    def _topic_id(self, name: str) -> bytes | None:
        incarnation = self.coordinator.current
        return None if incarnation is None else incarnation.topic_ids((name,)).get(name)

    def _consumer_session_timeout_ms(self, group_id: str) -> int | None:
        incarnation = self.coordinator.current
        return None if incarnation is None else incarnation.consumer_session_timeout_ms(group_id)

    def _coordinator_ended(self) -> None:
        self.answers.restarted()
        self.network.server_ended()

    async def start(self) -> None:
        """Start the coordinator; again, if the power fails meanwhile."""
        while self.coordinator.is_down and not await self.coordinator.start():
            await self.sleep(0.1)

    async def begin(self, sync: Sync = "always", **settings: Any) -> None:
        """Start a coordinator with other settings on an empty disk. Call it first in a scenario."""
        self.coordinator.crash()
        self.coordinator.setup = self.coordinator.setup._replace(
            settings=simulation_settings(**settings),
            sync=sync,
            may_load_in_background=sync == "always",  # otherwise the losses are checked before the first request
        )
        self.coordinator.new_disk()
        await self.start()

    async def restart(self) -> None:
        """Stop the coordinator cleanly, and start it."""
        await self.coordinator.stop()
        await self.start()

    def crash(self) -> None:
        """Kill the coordinator's process. ``start`` starts the next one."""
        self.coordinator.crash()

    def power_cut(self, changes: int | None = None) -> None:
        """Cut the power of the coordinator's machine: now, or during the n-th change of its disk."""
        if changes is None:
            self.coordinator.power_cut()
        else:
            self.coordinator.mark_disk_faulty()
            self.coordinator.disk.faults.crash_at(changes)

    def fail_disk(self, fault: Fault) -> None:
        """Make the coordinator's disk fail, until ``mend_disk``."""
        self.coordinator.mark_disk_faulty()
        self.coordinator.disk.faults.fail(fault)

    def refuse_appends(self) -> None:
        """Let the log refuse all appends until ``mend_disk``: there is no room for the next write of its journal.

        Nothing else fails, and the coordinator goes on. After ``mend_disk`` the log accepts appends within a second.
        """
        self.coordinator.disk.faults.fail(Fault("write", errno.ENOSPC, str(DATA_FOLDER / "journal" / "*"), times=inf))

    def mend_disk(self) -> None:
        self.coordinator.disk.faults.clear()

    def compact(self) -> int:
        """Compact the log in one step. Returns the number of compacted partitions."""
        return self.coordinator.compactions.compact()

    def compact_in_subprocess(self) -> None:
        """Compact in a subprocess: other work runs between its disk operations. Several may run at once."""
        self.coordinator.compactions.compact_in_subprocess()

    def set(self, **settings: int | bool) -> bool:
        """Change settings of the running coordinator. Returns whether the change is certain."""
        incarnation = self.coordinator.current
        return incarnation is not None and incarnation.set(**settings)

    def delete_topic(self, name: str) -> None:
        """Delete a topic, if it exists. The offsets of its groups are deleted soon after."""
        incarnation = self.coordinator.current
        if incarnation is not None and incarnation.delete_topic(name):
            self.tell(f"topic {name} is deleted")
            self.registers.topic_deleted(name, self.history.events)

    # Processes and members -------------------------------------------------------------------------------------------

    def process(self, name: str) -> Process:
        """Make a process on the machine ``name``. It replaces an earlier one there."""
        process = Process(self.loop, name)
        self._processes[name] = process
        return process

    def connector(self, name: str, process: Process | None = None) -> SimulatedConnector:
        """The ``Connector`` of a process."""
        process = process or self._processes.get(name) or self.process(name)
        return SimulatedConnector(self.network, self.network.host(name, process))

    def spawn(self, name: str, program: Program[T]) -> asyncio.Task[T]:
        """Start a process on the machine ``name``. Members created in it belong to it. See ``kill``, ``freeze``.

        ``program``: a coroutine; or a function that returns one, then ``Chaos`` may kill the process and start another
        one with it. An uncaught error of it ends the run.
        """
        process = self.process(name)
        task = process.start(program() if callable(program) else program)
        task.add_done_callback(self._process_ended)
        self.spawned.add(name, Spawned(program, process, task))
        return task

    def _process_ended(self, task: asyncio.Task[Any]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not self.failed.done():
            self.history.tell(f"WRONG: {task.get_name()} ended with {error!r}")
            self.failed.set_exception(error)

    def member(self, group_id: str, **options: Unpack[MemberArguments]) -> Member:
        """Make a member, as ``Coordinator.member`` does, in the calling process (see ``spawn``)."""
        process = current_process()
        name = "member" if process is None else process.name
        checked = make_options(options)
        is_classic = checked.protocol == CLASSIC
        consumer_session_ms = self.coordinator.setup.settings.group_consumer_session_timeout_ms
        timeouts = checked.timeouts(None if is_classic else consumer_session_ms)
        self._interval_max_s = max(self._interval_max_s, timeouts.interval_s)
        draw = random.Random(self.random.random())
        member = Member(self.connector(name, process), group_id, random=draw, clock_s=self.loop.time, **options)
        self.leases.watch(member, process, timeouts)
        return member

    async def serve(self, member: Member, handler: Callable[[Shard], Coroutine[Any, Any, object]], who: str) -> None:
        """Run ``member.run(handler)`` and report its work to the checker. ``who``: the name of the owner."""

        async def watched(shard: Shard) -> None:
            with self.works_on((member.group_id, shard.resource, shard.name), who, shard.token):
                await handler(shard)

        async with member:
            await member.run(watched)

    def kill(self, name: str) -> None:
        """Kill a process."""
        self._processes[name].kill()
        self.holders.killed(self._processes[name])
        self.network.disconnect(name)

    def kill_for(self, name: str, seconds: float) -> None:
        """Kill a process of ``spawn`` whose program is a function. It starts again after so long, or in ``calm``."""
        self.kill(name)
        self.spawned.add_killed(name)
        self.loop.call_later(seconds, self._restart_killed, name)

    def _restart_killed(self, name: str) -> None:
        program = self.spawned.take_killed(name)
        if program is not None:
            self.spawn(name, program)

    def freeze_for(self, name: str, seconds: float) -> None:
        """Suspend a process. It is resumed after so long, or in ``calm``, unless it is killed before."""
        self.freeze(name)
        process = self._processes[name]
        self.loop.call_later(seconds, self._thaw_process, process, process.freezes)

    def _thaw_process(self, process: Process, freezes: int) -> None:
        if process is self._processes[process.name] and process.freezes == freezes:
            self.thaw(process.name)

    def freeze(self, name: str) -> None:
        """Suspend a process. ``thaw`` resumes it.

        The seed decides whether it was stopped, as by SIGSTOP, or its machine suspended, and its timers stood still.
        """
        self.holders.freeze(self._processes[name])
        self._processes[name].freeze()

    def thaw(self, name: str) -> None:
        process = self._processes[name]
        if process.is_frozen:
            process.thaw(self._thaw_draw.random() < SUSPENDED_CHANCE)
            grace_s = THAW_GRACE_S + self._interval_max_s
            self.loop.call_later(grace_s, self.holders.thawed, process, process.freezes)

    def works_on(self, resource: Resource, who: str, token: int) -> AbstractContextManager[Hold]:
        """A block that works on (group, resource, shard). The checker fails if another member does too."""
        return self.holders.works_on(resource, who, token, current_process() or self.process(who))

    # Time and faults -------------------------------------------------------------------------------------------------

    @property
    def now_s(self) -> float:
        return self.loop.time()

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def tell(self, text: str) -> None:
        """Add a line to the timeline."""
        self.history.tell(text)

    def fail(self, what: str) -> None:
        """Report a violation, which ends the run. Only the first one counts."""
        self.history.tell(f"WRONG: {what}")
        if not self.failed.done():
            self.failed.set_exception(Violation(what))

    def hosts(self) -> list[Host]:
        return [host for host in self.network.hosts() if host.name != CHECKER_HOST]

    async def calm(self) -> None:
        """End all faults of network, disk, coordinator and processes. Those that ``Chaos`` has killed start again."""
        self.network.heal_all()
        for name in list(self._processes):
            self.thaw(name)
        for name in self.spawned.killed():
            self._restart_killed(name)
        self.mend_disk()
        if self.coordinator.has_disk_faults:
            self.coordinator.crash()
        self.coordinator.disk.capacity_bytes = float("inf")
        await self.start()

    async def until(self, holds: Callable[[], bool | Awaitable[bool]], within_s: float, what: str) -> None:
        """Wait until ``holds()`` is true. Fails after ``within_s``."""
        give_up_s = self.now_s + within_s
        while True:
            answer = holds()
            if answer if isinstance(answer, bool) else await answer:
                return
            if self.now_s > give_up_s:
                self.fail(f"after {within_s:g} s it is still not true that {what}")
                return
            await self.sleep(CONDITION_INTERVAL_S)

    # The run ---------------------------------------------------------------------------------------------------------

    async def run(self, scenario: Scenario, limit_s: float) -> None:
        """Run the scenario and the final checks. Raises Violation, or the error of the scenario."""
        process = self.process("scenario")
        task = process.start(self._run_to_end(scenario))
        watch = self.loop.create_task(self._check_overdue_requests())
        try:
            await asyncio.wait({task, self.failed}, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            watch.cancel()
        if self.failed.done():
            self.failed.result()
        if not task.done():
            raise Violation(f"the scenario is not over after {limit_s:g} s; these wait:\n{self.loop.waiting()}")
        task.result()

    async def _run_to_end(self, scenario: Scenario) -> None:
        await self.start()
        await scenario(self)
        await self.calm()
        self.kill_all()  # no other clients during the final checks
        await self.check_final_state()

    def kill_all(self) -> None:
        """Kill all processes except the coordinator's and the calling one."""
        for name, process in list(self._processes.items()):
            if process is not current_process() and not process.is_dead:
                self.kill(name)

    async def _check_overdue_requests(self) -> None:
        while True:
            await asyncio.sleep(OVERDUE_CHECK_INTERVAL_S)
            self.answers.check_overdue()
            if self.coordinator.current is not None:
                self.sessions.check_overdue()
                check_groups(self.coordinator.current.node.groups.groups.values(), self.fail)

    async def check_final_state(self) -> None:
        """Check that the running, the replayed and the recovered state are equal, and that all offsets are possible."""
        self.coordinator.compactions.kill_subprocesses()
        if self.coordinator.setup.sync != "always":
            self.coordinator.setup = self.coordinator.setup._replace(sync="always")
            await self.restart()
        await self._fetch_all_offsets()
        await self._check_recovery()
        await self._fetch_all_offsets()
        violation = self.registers.find_violation()
        if violation:
            self.fail(violation)

    async def _check_recovery(self) -> None:
        incarnation = self.coordinator.current
        assert incarnation is not None
        await incarnation.process.start(incarnation.node.wait_until_loaded())
        await incarnation.process.start(incarnation.node.actors.drain())
        current, replayed = self.coordinator.current_state(), self.coordinator.replay_log()
        self._compare(current, "live", replayed, "in the log")
        self.power_cut()
        await self.start()
        incarnation = self.coordinator.current
        assert incarnation is not None
        await incarnation.process.start(incarnation.node.wait_until_loaded())
        self._compare(current, "before the power went", self.coordinator.current_state(), "after it")

    def _compare(self, state: dict[str, object], name: str, other_state: dict[str, object], other_name: str) -> None:
        for difference in self.coordinator.compare(state, name, other_state, other_name):
            self.fail(difference)

    async def _fetch_all_offsets(self) -> None:
        """Fetch all offsets of all groups, as a client does."""
        connector = self.connector(CHECKER_HOST)
        for group_id, topics in self.registers.written_offsets().items():
            for _ in range(FETCH_ATTEMPTS):
                if await self._try_fetch(connector, OffsetFetch(group_id, topics, require_stable=True)):
                    break
                await self.sleep(FETCH_RETRY_S)
            else:
                self.fail(f"the offsets of {group_id!r} cannot be fetched")

    async def _try_fetch(self, connector: SimulatedConnector, message: OffsetFetch) -> bool:
        try:
            channel = await connector.open(CHECKER_HOST)
            answer = await channel.ask(message)
            channel.close()
        except ChannelLost:
            return False
        errors = [partition.error for _, partitions in answer.topics for partition in partitions]
        return answer.error is ErrorCode.NONE and not any(errors)
