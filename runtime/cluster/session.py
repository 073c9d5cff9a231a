"""Session: one period in which a node takes part in the cluster. After it is fenced, the node begins another one.

The session renews its lease, looks at the other sessions and at the register, ends sessions that show no sign of life,
and gives partitions to nodes that should have them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import NamedTuple, Protocol

from ..common.logs import get_logger
from .burial import declare_dead, end_session
from .continuity import Known, Reconnecting
from .garbage import GarbageCollector
from .handover import Handover
from .keys import alive_key, register_key
from .lease import Lease
from .liveness import Liveness
from .outage import Outage
from .patient_store import PatientStore
from .register import Endpoint, Register, expected_partitions
from .register_log import RegisterLog
from .session_continuity import Continuity
from .session_environment import LOOKS_PER_TTL, SessionEnvironment
from .session_log import SessionLog
from .store import Store, StoreRefused, StoreUnavailable
from .wal import Fenced, confirm_alive

log = get_logger("callboard.cluster")


class Phase(IntEnum):
    """They follow each other in this order; some may be left out."""

    JOINING = 0
    ACTIVE = 1
    LEAVING = 2  # gives its partitions away, and gains none
    ENDED = 3  # has left, or is fenced


class SessionListener(Protocol):
    """Learns which partitions the session owns."""

    def gained(self, epochs: Mapping[int, int]) -> None:
        """By partition. The listener calls ``Session.log.load`` for each."""

    def lost(self, partitions: Collection[int]) -> None:
        """The session gives them away. The listener calls ``Session.release`` when it appends nothing to them."""

    def fenced(self, reason: str) -> None:
        """All partitions are lost: the session has ended."""

    def register_changed(self) -> None:
        """The session has read a newer version of the register. Does not block."""

    def confirmed(self, register: Register, known: Known) -> None:
        """The store has all of this. Does not block."""

    def followed_key(self) -> str | None:
        """The key of the next version of another document. The session reads it with the signs of life."""

    def followed_changed(self) -> None:
        """There is that version. Does not block."""

    def followed_unchanged(self, key: str, asked_s: float) -> None:
        """After this time there was no version of this key. Does not block."""


class NodeIdentity(NamedTuple):
    """How a node appears in the register. ``name`` is stable; ``endpoints``: advertised addresses by listener.

    ``is_exclusive``: a lock keeps other processes from having the name, so its earlier sessions have certainly ended.
    ``is_draining``: an operator has drained its earlier session.
    """

    name: str
    endpoints: Mapping[str, Endpoint]
    version: str = ""
    is_exclusive: bool = False
    is_draining: bool = False


class Session:
    """``log`` has the partitions it holds. All its tasks run in ``run``.

    ``refusal``: why this node can take part no more, after the session has ended.
    """

    def __init__(
        self, store: Store, environment: SessionEnvironment, identity: NodeIdentity, listener: SessionListener
    ) -> None:
        self.name = f"{identity.name}-{environment.token().hex()}"
        self.phase = Phase.JOINING
        self.refusal: StoreRefused | None = None
        self._store = PatientStore(store)
        self._environment = environment
        self._identity = identity
        self._listener = listener
        self.register = RegisterLog(self._store, environment)
        self.lease = Lease(store, self.name, environment)
        self.log = SessionLog(self._store, environment, self.name)
        self.liveness = Liveness(environment.ttl_s)
        self._owned: dict[int, int] = {}  # epochs by partition, as told to the listener
        self._applied = -1  # the version of the register that it was told
        self._handover = Handover(self._store, environment, self.log, listener.lost, self._change)
        self._tasks: dict[str, asyncio.Task[None]] = {}

    @property
    def is_draining(self) -> bool:
        """By the newest register, also after its end."""
        return self._identity.is_draining

    async def join(self) -> bool:
        """Take part from now on. Returns whether there are other nodes, none of which knew this one.

        Raises Fenced if it was declared dead before it had joined.
        """
        if isinstance(self._store.impatient, Reconnecting):
            self._store.impatient.on_connected = self._continuity().check
            self._store.impatient.connect_ahead()
        await self.lease.begin()
        identity = self._identity
        predecessors = await self._end_predecessors()
        is_new = False

        def with_this_node(register: Register) -> Register:
            nonlocal is_new
            names = {node.name for node in register.nodes.values()}
            is_new = bool(names) and identity.name not in names
            joined = register.with_node(self.name, identity.name, identity.endpoints, identity.version, predecessors)
            return joined.with_draining(self.name, identity.is_draining)

        await self.register.change(with_this_node, self._confirm_join)
        self.phase = Phase.ACTIVE
        return is_new

    async def _end_predecessors(self) -> Collection[str]:
        """The earlier sessions of this node, sealed. Nobody else has to wait for a TTL to take what they owned."""
        if not self._identity.is_exclusive:
            return ()
        nodes = (await self.register.read()).nodes
        predecessors = [session for session, node in nodes.items() if node.name == self._identity.name]
        for session in predecessors:
            end = await declare_dead(self._store, self._environment, session)
            log.info("earlier session ended", session=session, rounds=end)
        return predecessors

    async def run(self) -> None:
        """Take part until it is fenced or has left. Then the listener was told, or ``leave`` returns."""
        garbage = GarbageCollector(self._store, self._environment, self.name, self.register, self.log.held)
        self._start("lease", self.lease.keep)
        self._start("watch", self._watch)
        self._start("continuity", partial(self._continuity().keep_checking, self._store))
        self._start("checkpoints", self.log.keep_short)
        self._start("packs", self.log.keep_packed)
        self._start("garbage", garbage.collect_regularly)
        while self.phase != Phase.ENDED:
            await asyncio.wait(list(self._tasks.values()), return_when=asyncio.FIRST_COMPLETED)

    def _continuity(self) -> Continuity:
        return Continuity(self.register, self.log, self._environment, self._listener.confirmed)

    def release(self, partition: int) -> None:
        """Nothing is appended to the partition any more, after ``SessionListener.lost``."""
        self._handover.release(partition)

    async def leave(self) -> None:
        """Give all partitions to the other nodes, and end. If it is fenced meanwhile, they are taken from it."""
        if self.phase == Phase.ACTIVE:
            self.phase = Phase.LEAVING
            self._start("leave", self._leave)
        while "leave" in self._tasks:
            await asyncio.wait({self._tasks["leave"]})

    async def _leave(self) -> None:
        while "give" in self._tasks:
            await asyncio.wait({self._tasks["give"]})
        register = await self._change(self._with_draining)
        if register is not None:
            await self._handover.give(self._handover.surplus(register))
        await self._handover.close(list(self._owned))
        await self.log.seal()
        self._tasks["watch"].cancel()  # a register without this session would fence it
        await self.register.change(lambda register: register.without_nodes([self.name]), self._confirm_alive)
        self.halt()

    def _with_draining(self, register: Register) -> Register | None:
        return register.with_draining(self.name, True) if self.name in register.nodes else None

    def fence(self, reason: str) -> None:
        """End it at once, because others may write to its partitions. A second call does nothing."""
        if self.phase != Phase.ENDED:
            log.warning("session fenced", session=self.name, reason=reason)
            self.halt()
            self._listener.fenced(reason)

    def refuse(self, error: StoreRefused) -> None:
        """End it at once, and for good."""
        self.refusal = self.refusal or error
        self.fence(str(error))

    def halt(self) -> None:
        """End as at the death of the process. Nobody is told."""
        self.phase = Phase.ENDED
        self.lease.end()
        for task in self._tasks.values():
            if task is not asyncio.current_task():
                task.cancel()

    def _start(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Start a task unless one of that name runs. An error that it raises fences the session."""
        if name not in self._tasks and self.phase != Phase.ENDED:
            self._tasks[name] = asyncio.get_running_loop().create_task(self._run_task(name, work))

    async def _run_task(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except Fenced as error:
            self.fence(str(error))
        except StoreRefused as error:
            self.refuse(error)
        except Exception as error:
            log.exception("bug in a task of a session", session=self.name, task=name)
            self.fence(f"{name}: {error!r}")
        finally:
            del self._tasks[name]

    # The others ------------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        interval_s = self._environment.ttl_s / LOOKS_PER_TTL
        outage = Outage("the store is not available", session=self.name)
        while True:
            try:
                await self._look()
                await self._store.impatient.wait_for_change(interval_s)
                outage.end()
            except StoreUnavailable as error:
                outage.note(error)
                await self._environment.sleep(interval_s)

    async def _look(self) -> None:
        register = self.register.current or await self.register.read()
        others = register.watched_by(self.name)
        asked_s = self._environment.now()
        followed_key = self._listener.followed_key()
        keys = [register_key(register.version + 1), *map(alive_key, others), *filter(None, [followed_key])]
        following, *values = await self._store.impatient.get(keys)
        if following is not None:
            register = await self.register.read()
        else:
            self.register.note_newest(register.version, asked_s)
        counters = values[: len(others)]
        if followed_key and values[-1] is not None:
            self._listener.followed_changed()
        elif followed_key:
            self._listener.followed_unchanged(followed_key, asked_s)
        applied = self._applied
        self._apply(register)
        answered_s = self._environment.now()
        dead = self.liveness.look(dict(zip(others, counters, strict=True)), asked_s, answered_s)
        if self.liveness.fell_silent or self._applied != applied:
            self._environment.expect(expected_partitions(register, self.name, self.liveness.silent))
        for session, counter in dead.items():
            if self.lease.is_valid and session in register.nodes:
                self._start(f"end {session}", partial(self._end_other, session, counter))
        self._balance(register)

    async def _end_other(self, session: str, counter: bytes | None) -> None:
        await end_session(self._store, self.register, self._environment, session, counter, self._confirm_alive)

    def _apply(self, register: Register) -> None:
        """Tell the listener what has changed. Another task may have applied a newer version meanwhile."""
        if register.version <= self._applied:
            return
        self._applied = register.version
        if self.name not in register.nodes:
            raise Fenced("it is not in the register")
        owned = register.owned(self.name)
        gained = {partition: epoch for partition, epoch in owned.items() if self._owned.get(partition) != epoch}
        self._owned = owned
        self._identity = self._identity._replace(is_draining=register.nodes[self.name].is_draining)
        if gained and self.phase == Phase.ACTIVE:
            self._listener.gained(gained)
        self._listener.register_changed()

    # Giving partitions away ------------------------------------------------------------------------------------------

    def _balance(self, register: Register) -> None:
        if self.phase == Phase.ACTIVE and self._surplus(register):
            self._start("give", self._give_surplus)

    def _surplus(self, register: Register) -> Sequence[int]:
        """What other nodes should have, if all that was gained is loaded."""
        is_settled = all(partition in self.log.held for partition in self._owned)
        return self._handover.surplus(register) if is_settled else ()

    async def _give_surplus(self) -> None:
        """Wait until no node comes or goes: when many start at once, partitions move once and not with each of them."""
        register = await self.register.read()
        nodes = None
        while nodes != register.nodes.keys() and self.phase == Phase.ACTIVE and not self.is_draining:
            nodes = register.nodes.keys()
            await self._environment.sleep(self._environment.calm_s)
            register = await self.register.read()
        self._apply(register)
        surplus = self._surplus(register)
        if surplus and self.phase == Phase.ACTIVE:
            await self._handover.give(surplus)

    async def _change(self, change: Callable[[Register], Register | None]) -> Register | None:
        changed = await self.register.change(change, self._confirm_alive)
        if changed is not None:
            self._apply(changed)
        return changed

    async def _confirm_alive(self) -> None:
        await confirm_alive(self._store, self.name)

    async def _confirm_join(self) -> None:
        """The register's newest version has this session, else the version that it created had been deleted before."""
        await self._confirm_alive()
        if self.name not in (await self.register.list_newest()).nodes:
            raise Fenced("it is not in the newest register")
