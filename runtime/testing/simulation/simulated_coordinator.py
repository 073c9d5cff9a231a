"""A simulated coordinator: one disk, and one process after the other on it, each with a real ``Node``.

A process ends by ``stop``, by ``crash`` (SIGKILL: written data stays), or by a power loss, at once or in the middle of
a write. None of its code runs afterwards. The next process starts with the remaining content of the disk.
"""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import inf
from typing import Any, NamedTuple, Protocol, runtime_checkable
from uuid import UUID

import pykka

from ....actors.consumer_group.decision_environment import OwnSettings
from ....actors.engine_ports import ReplyTo
from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.group.actor import GroupActor
from ....actors.group.offsets import GroupData
from ....actors.steps import SLICE_NS
from ....actors.transactions.messages import (
    AddOffsets,
    AddPartitions,
    EndTransaction,
    InitProducerId,
    VerifyPartitions,
)
from ...cli.log.forward import LogReplay
from ...cli.log.newest import comparable_state
from ...cli.log.verify import describe_differences
from ...disk.group_commit import immediate_outcome
from ...engine.alarm import WhenRead
from ...engine.reply import Reply
from ...kafka.services import Origin
from ...loading.loader import load_inline
from ...log.folder import DataFolder
from ...log.pieces import LoadJob, PieceHandler
from ...log.store import LogStore, Ownership
from ...member.channel import ChannelLost
from ...node.environment import CheckpointTriggers, Environment, WorkClocks
from ...node.node import Node
from ...settings.table import Options, Settings, Sync
from ...topics.store import NewTopic
from ..disk.faulty import FaultyDisk, PowerLoss
from .compactions import DATA_FOLDER, SimulatedCompactions
from .dispatcher import SeededDispatcher, SimulatedThreads
from .history import History
from .loop import LoopClock, Process, VirtualLoop

HOST = "/127.0.0.1"
TRANSACTION_REQUESTS = (InitProducerId, AddPartitions, AddOffsets, VerifyPartitions, EndTransaction)

CHECKPOINT_BYTES = (400, 4000, 1 << 26)
CHECKPOINT_INTERVAL_MS = (300, 4000, 60_000)
"""Checkpoint limits, drawn for each process: several checkpoints a second, or none."""

BACKGROUND_LOADING_CHANCE = 0.4
SLICE_CLOCK_STEP_NS = SLICE_NS // 8
"""Each reading of the clocks is later by this, so that a slice has eight steps."""

LOAD_PIECE_MAX_S = 0.5
"""The longest pause before the next piece of the log is loaded while the coordinator already serves."""


@runtime_checkable
class ReadableLog(Protocol):
    """A log whose records can be read one by one: ``OffsetsLog``, or the shared store of a scenario."""

    def offsets_partitions_with_data(self) -> Iterable[int]: ...

    def transactions_partitions_with_data(self) -> Iterable[int]: ...

    def read(self, partition: int) -> Iterator[tuple[Any, Any, Any]]:
        """Yield log offset, timestamp and record of each record of a partition."""


def _ticks() -> Callable[[], int]:
    return itertools.count(step=SLICE_CLOCK_STEP_NS).__next__


class DrawnIds:
    """An ``actors.ports.Random`` from a seed."""

    def __init__(self, draw: random.Random) -> None:
        self._draw = draw

    def uuid(self) -> str:
        return str(UUID(int=self._draw.getrandbits(128), version=4))


class CoordinatorIncarnation:
    """One process of the coordinator. Implements ``network.NetworkServer``."""

    def __init__(self, number: int, process: Process, node: Node, on_power_loss: Callable[[], None]) -> None:
        self.number = number
        self.process = process
        self.node = node
        self._on_power_loss = on_power_loss
        self._channels = 0

    def post(self, message: Any, client_id: str, receiver: ReplyTo) -> None:
        if isinstance(message, TRANSACTION_REQUESTS):
            self.node.actors.transactions.post(message, receiver)
            return
        self._channels += 1
        try:
            reply = self.node.local.ask(message, Origin(client_id, HOST, self._channels))
        except pykka.ActorDeadError as error:
            receiver.set_exception((type(error), error, None))
        else:
            reply.on_done(partial(_forward_reply, receiver))

    def ensure_topics(self, partitions: Mapping[str, int]) -> None:
        """Create or grow topics, as a request does. Raises ChannelLost if the power fails meanwhile."""
        try:
            for name, count in partitions.items():
                self._ensure_topic(name, count)
        except PowerLoss:
            self._on_power_loss()
            raise ChannelLost("the coordinator has died") from None

    def _ensure_topic(self, name: str, count: int) -> None:
        topic, admin = self.node.topics.get(name), self.node.services.topic_admin
        refusal: object = None
        if topic is None:
            [refusal] = immediate_outcome(partial(admin.create, [NewTopic(name, count)]))
        elif len(topic.partitions) < count:
            refusal = immediate_outcome(partial(admin.grow, topic, count))
        if isinstance(refusal, CoordinatorError):
            raise refusal

    def delete_topic(self, name: str) -> bool:
        """Delete a topic, as a request does. Returns whether it existed and is deleted."""
        try:
            topic = self.node.topics.get(name)
            if topic is None:
                return False
            [refusal] = immediate_outcome(partial(self.node.services.topic_admin.delete, [topic]))
            if refusal is not None:
                raise refusal
        except PowerLoss:
            self._on_power_loss()
            return False
        return True

    def set(self, **settings: int | bool) -> bool:
        """Change settings, as an admin request does. Returns whether the change is certain."""
        try:
            failure = immediate_outcome(partial(self.node.services.settings_admin.set, settings))
            if failure is not None:
                raise failure
        except PowerLoss:
            self._on_power_loss()
            return False
        return True

    def set_of_group(self, group_id: str, settings: Mapping[str, str]) -> None:
        """Change settings of a group, by Kafka's names, as an admin request does."""
        alter = self.node.services.settings_admin.groups.alter
        failure = immediate_outcome(partial(alter, group_id, lambda own: {**own, **settings}))
        if failure is not None:
            raise failure

    def partitions(self, topics: Iterable[str]) -> dict[str, int]:
        topic_objects = ((name, self.node.topics.get(name)) for name in topics)
        return {name: len(topic.partitions) for name, topic in topic_objects if topic is not None}

    def topic_ids(self, topics: Iterable[str]) -> dict[str, bytes]:
        topic_objects = ((name, self.node.topics.get(name)) for name in topics)
        return {name: topic.topic_id.bytes for name, topic in topic_objects if topic is not None}

    def consumer_session_timeout_ms(self, group_id: str) -> int:
        services = self.node.services
        return OwnSettings(group_id, services.settings, services.configs.groups.effective).session_timeout_ms


def _forward_reply(receiver: ReplyTo, reply: Reply) -> None:
    try:
        answer = reply.get()
    except pykka.ActorDeadError as stopped:
        error = CoordinatorError(ErrorCode.NOT_COORDINATOR, "the coordinator has stopped")
        receiver.set_exception((type(error), error, stopped.__traceback__))
    except Exception as error:
        receiver.set_exception((type(error), error, error.__traceback__))
    else:
        receiver.set(answer)


class CoordinatorHooks(NamedTuple):
    """What the coordinator uses of the network: it tells of the start and the end of each process.

    ``when_read``: see ``node.environment.Environment``.
    """

    on_start: Callable[[CoordinatorIncarnation], None]
    on_end: Callable[[], None]
    when_read: WhenRead


class CoordinatorSetup(NamedTuple):
    """How the processes of a coordinator are started.

    ``may_load_in_background``: a process may serve before all of its log is loaded. ``store``: makes the store of each
    process; None: files on the simulated disk.
    """

    settings: Settings
    sync: Sync = "always"
    may_load_in_background: bool = True
    store: Callable[[DataFolder], tuple[LogStore, Ownership]] | None = None


class SimulatedCoordinator:
    """The coordinator of a scenario."""

    def __init__(
        self,
        loop: VirtualLoop,
        seed: str,
        settings: Settings,
        history: History,
        hooks: CoordinatorHooks,
    ) -> None:
        self.setup = CoordinatorSetup(settings)
        self.power_lost_s: float | None = None
        """The time of the first power loss since the last start."""
        self.clock = LoopClock(loop)
        self._seed = seed
        self.new_disk()
        self.current: CoordinatorIncarnation | None = None
        self._process: Process | None = None  # that of ``current``, or one that is starting
        self.count = 0
        self.down = asyncio.Event()
        self._faulty_disk: FaultyDisk | None = None
        self._loop = loop
        self._draw = random.Random(f"{seed}/coordinator")
        self.compactions = SimulatedCompactions(self, loop, self._draw)
        self._history = history
        self._hooks = hooks
        self.down.set()

    def new_disk(self) -> None:
        """Use a new, empty disk. The coordinator must be down."""
        self.disk = FaultyDisk(integer_seed_of(self._seed))
        self.disk.make_folder(DATA_FOLDER)
        self.disk.sync_folder(DATA_FOLDER.parent)
        self.power_lost_s = None

    @property
    def is_down(self) -> bool:
        """Whether no process runs or starts."""
        return self._process is None

    @property
    def has_disk_faults(self) -> bool:
        """Whether disk faults are active or expected: then starts and commits may fail."""
        return self._faulty_disk is self.disk or self.disk.capacity_bytes < inf

    def mark_disk_faulty(self) -> None:
        """Mark the current disk as faulty, until it is replaced at the end of the process."""
        self._faulty_disk = self.disk

    async def start(self) -> bool:
        """Start the next process. False if the power fails meanwhile, or the faulty disk refuses."""
        self.count += 1
        process = Process(self._loop, f"coordinator-{self.count}")
        options = Options(data=DATA_FOLDER, sync=self.setup.sync, unsafe_settings=True)
        opening = Node.open(self.setup.settings, options, self._environment(process))
        self._process = process
        self.down.clear()
        self._history.coordinator_starts(f"coordinator-{self.count}")
        starting = process.start(opening)
        if not await self._finished_before_end(starting):
            return False
        try:
            node = starting.result()
        except (PowerLoss, Exception):
            if not (self.disk.faults.is_off or self.has_disk_faults):
                raise
            self._end("could not start")
            return False
        self.current = CoordinatorIncarnation(self.count, process, node, partial(self._on_power_loss, process))
        self._hooks.on_start(self.current)
        self._history.tell(f"coordinator-{self.count} serves")
        return True

    def _environment(self, process: Process) -> Environment:
        on_power_loss = partial(self._on_power_loss, process)
        return Environment(
            disk=self.disk,
            clock=self.clock,
            random=DrawnIds(random.Random(self._draw.random())),
            threads=lambda: SimulatedThreads(self._loop, random.Random(self._draw.random()), on_power_loss),
            work_clocks=WorkClocks(self._loop.time, _ticks(), _ticks()),
            dispatcher=lambda _loop: SeededDispatcher(self._loop, random.Random(self._draw.random()), on_power_loss),
            allows_workers=False,
            load=self._load_in_background
            if self._draw.random() < BACKGROUND_LOADING_CHANCE and self.setup.may_load_in_background
            else None,
            checkpoints=CheckpointTriggers(
                self._draw.choice(CHECKPOINT_BYTES), self._draw.choice(CHECKPOINT_INTERVAL_MS)
            ),
            group_observer=self._history,
            when_read=self._hooks.when_read,
            store=self.setup.store,
        )

    async def _load_in_background(self, jobs: Sequence[LoadJob], apply: PieceHandler) -> None:
        """Load in any order and piece by piece while the coordinator serves, as child processes do."""
        disk = self.disk
        for job in self._draw.sample(jobs, len(jobs)):
            pieces: list[tuple[LoadJob, Any]] = []
            load_inline([job], lambda job, piece, to=pieces: to.append((job, piece)), disk)  # type: ignore[misc]
            for piece in pieces:
                await asyncio.sleep(LOAD_PIECE_MAX_S * self._draw.random())
                apply(*piece)

    def _on_power_loss(self, process: Process) -> None:
        """Called when a disk operation found that the power is off."""
        if self._process is process:
            self._end("has lost its power")
        process.kill()

    async def stop(self) -> None:
        """Stop cleanly, as by SIGTERM: all decisions are answered and durable."""
        incarnation = self.current
        if incarnation is None:
            return
        self._history.tell(f"coordinator-{self.count} stops")
        stopping = incarnation.process.start(incarnation.node.stop())
        if await self._finished_before_end(stopping):
            try:
                stopping.result()
            except (PowerLoss, Exception):
                if not (self.disk.faults.is_off or self.has_disk_faults):
                    raise
            self._end("has stopped")

    async def _finished_before_end(self, task: asyncio.Task[Any]) -> bool:
        """Wait for a task of the process. Returns whether it finished before the process ended."""
        end = asyncio.ensure_future(self.down.wait())
        await asyncio.wait({task, end}, return_when=asyncio.FIRST_COMPLETED)
        end.cancel()
        return not self.down.is_set()

    def compaction_failed(self, error: BaseException) -> None:
        """A compaction has raised ``error``: a power loss, or the effect of a disk fault. Raises any other."""
        if isinstance(error, PowerLoss):
            self._end("has lost its power")
        elif not self.has_disk_faults:
            raise error

    def crash(self) -> None:
        """Kill the process, as by SIGKILL. The operating system still writes its data."""
        self._end("is killed")

    def power_cut(self) -> None:
        """Cut the power now, between two disk operations."""
        self._end("has lost its power", loses_power=True)

    def _end(self, reason: str, loses_power: bool = False) -> None:
        """End the current process, if any, and reopen the disk in the state after it."""
        loses_power = loses_power or self.disk.faults.is_off
        process, self._process, self.current = self._process, None, None
        if process is not None:
            self._history.tell(f"{process.name} {reason}")
            process.kill()
            self._hooks.on_end()
            self.down.set()
        elif not loses_power:
            return
        self._reopen_disk(loses_power)

    def _reopen_disk(self, loses_power: bool) -> None:
        """Reopen the disk after the end of a process. Subprocesses survive, unless the power is off."""
        if loses_power:
            self.power_lost_s = self._loop.time() if self.power_lost_s is None else self.power_lost_s
            self.compactions.kill_subprocesses()
            self.disk = self.disk.crash()
        else:
            self.disk = self.disk.kill(self.compactions.open_files)
            self.compactions.use_disk(self.disk)

    # State ------------------------------------------------------------------------------------------------------------

    def groups(self) -> dict[str, GroupData]:
        """The state of each group in the coordinator."""
        assert self.current is not None, "the coordinator is down"
        node = self.current.node
        data_by_group = {name: GroupData.unpack(packed) for name, packed in node.groups.passivated.items()}
        for name, ref in node.groups.groups.items():
            actor = ref.actor_inbox.actor
            if isinstance(actor, GroupActor):
                data_by_group[name] = actor.data
        return {name: data for name, data in data_by_group.items() if not data.is_empty()}

    def current_state(self) -> dict[str, object]:
        """The state of each group and transactional id, in comparable form."""
        assert self.current is not None, "the coordinator is down"
        node = self.current.node
        groups: dict[str, object] = {name: comparable_state(data) for name, data in self.groups().items()}
        ids = {name: entry.value for name, entry in node.actors.transaction_table.items() if entry.value is not None}
        return groups | ids

    def replay_log(self) -> dict[str, object]:
        """The state replayed from the log record by record. Call it only when no write is pending."""
        assert self.current is not None, "the coordinator is down"
        log = self.current.node.offsets_log
        assert isinstance(log, ReadableLog)
        state: dict[str, object] = {}
        for number in (*log.offsets_partitions_with_data(), *log.transactions_partitions_with_data()):
            replay = LogReplay()
            for _, _, record in log.read(number):
                replay.apply(record)
            state |= replay.state()
        return state

    def compare(
        self, state: Mapping[str, object], name: str, other_state: Mapping[str, object], other_name: str
    ) -> list[str]:
        """One text for each difference between two states."""
        return list(describe_differences(state, name, other_state, other_name))


def integer_seed_of(seed: str) -> int:
    """Convert a seed to an int, for consumers that need one."""
    return random.Random(seed).getrandbits(64)
