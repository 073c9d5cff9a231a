"""ClusterNode: this node's part in the cluster. It begins another session whenever one is fenced."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import Final, Protocol

from ...actors.callboard_error import CallboardError
from ..common.errors import StartError
from ..common.logs import get_logger
from ..log.partition_counts import PartitionCounts
from ..log.store import OwnershipListener
from .continuity import Known, Reconnecting, StoreOlder
from .credentials import SECRET_BYTES
from .documents import Unreadable
from .keys import SECRET_KEY
from .known_file import KnownFile, Note
from .outage import Outage
from .patient_store import PatientStore
from .register import Register
from .register_log import RegisterLog, newest_register
from .session import NodeIdentity, Phase, Session
from .session_environment import SessionEnvironment
from .session_producer_ids import SessionProducerIds
from .store import Store, StoreRefused, settle
from .wal import Fenced

REJOIN_PAUSE_S = 0.1
REFUSED_PAUSE_S = 1.0
REPORT_LIMIT_S = 10.0
FINAL: Final = (Unreadable, StoreOlder)
"""Refusals that no repair of the store's rights ends."""

log = get_logger("callboard.cluster")


def _ignore() -> None:
    """The default of ``on_register_changed``."""


class Followed(Protocol):
    """Another document of the cluster that this node follows, see ``SessionListener``."""

    def joined(self, cluster_id: str, *, is_new: bool) -> None:
        """A session has begun. ``is_new``: there are other nodes, none of which knew this one."""

    def next_key(self) -> str | None: ...

    def notice(self) -> None: ...

    def note_unchanged(self, key: str, asked_s: float) -> None: ...


class ClusterNode:
    """``Ownership``, and ``SessionListener`` of its sessions. ``session`` is the newest one.

    ``on_failed`` is called with the error when the node cannot take part any more. ``secret``: see ``credentials``;
    empty before the first session. ``gained_versions``: by partition a version of the register, at which this node had
    it already. ``followed`` and ``known_file`` may be set, and ``on_register_changed``, which is called after a newer
    version was read.
    """

    def __init__(
        self,
        store: Store,
        environment: SessionEnvironment,
        identity: NodeIdentity,
        counts: PartitionCounts,
        on_failed: Callable[[Exception], None],
    ) -> None:
        self.store = store
        self.counts = counts
        self.session: Session | None = None
        self.secret = b""
        self.gained_versions: dict[int, int] = {}
        self.producer_ids = SessionProducerIds()
        self._environment = environment
        self._identity = identity
        self._on_failed = on_failed
        self.followed: Followed | None = None
        self.on_register_changed: Callable[[], None] = _ignore
        self._listeners: list[OwnershipListener] = []
        self.known_file: KnownFile | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_stopping = False

    @property
    def register(self) -> Register | None:
        """The newest version that this node has read; None before it has joined."""
        return None if self.session is None else self.session.register.current

    @property
    def own_session(self) -> str:
        """The name of the session that takes part now; "" for none."""
        session = self.session
        return session.name if session is not None and session.phase is Phase.ACTIVE else ""

    @property
    def name(self) -> str:
        return self._identity.name

    def has_lease(self) -> bool:
        """Whether this node may answer reads: nobody else can have changed what it owns."""
        session = self.session
        return session is not None and session.lease.is_valid

    def is_silent(self, session: str) -> bool:
        """Whether a session shows no sign of life, and may be declared dead soon. It may be the own one."""
        own = self.session
        if own is not None and own.name == session:
            return not self.has_lease()
        return own is not None and own.liveness.is_silent(session)

    # Ownership -------------------------------------------------------------------------------------------------------

    def add_listener(self, listener: OwnershipListener) -> None:
        """It gets the changes of ownership before those that were added later."""
        self._listeners.append(listener)

    def start(self, listener: OwnershipListener) -> None:
        """Join the cluster in the background."""
        self.add_listener(listener)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def refused(self, partition: int, epoch: int) -> None:
        """Nothing to do: a session whose append was refused has been fenced, which the listener was told."""

    def stop(self) -> None:
        """End without giving partitions away: the others take them when the lease has ended."""
        self._is_stopping = True
        if self.session is not None:
            self.session.halt()
        if self._task is not None:
            self._task.cancel()

    async def leave(self) -> None:
        """Give all partitions to the other nodes, and take part no more."""
        self._is_stopping = True
        if self.session is not None:
            await self.session.leave()
            log.info("left the cluster", session=self.session.name)

    async def _run(self) -> None:
        refusals = Outage("the store refuses this node", node=self.name)
        try:
            while not self._is_stopping:
                await self._environment.sleep(await self._run_session_if_allowed(refusals))
        except StoreOlder as error:
            log.error("the store is an older copy", reason=str(error))
            await self._report_older_store(error)
            self._on_failed(error)
        except (StoreRefused, StartError) as error:
            log.error("the cluster refuses this node", reason=str(error))
            self._on_failed(error)
        except Exception as error:
            log.exception("bug in the cluster's node")
            self._on_failed(CallboardError(repr(error)))

    async def _report_older_store(self, error: StoreOlder) -> None:
        """Stop all other nodes, and those that will be started, too: they may not be able to notice it."""
        if isinstance(self.store, Reconnecting):
            self.store.on_connected = None
        register = RegisterLog(PatientStore(self.store), self._environment, reads_damaged=True)
        served = None if self.register is None else self.register.cluster_id

        def damaged(current: Register) -> Register | None:
            """Another cluster, which was begun in an emptied store, has lost nothing."""
            is_other = served is not None and current.cluster_id != served
            return None if is_other else current.damaged(f"node {self.name}: {error}")

        try:
            async with asyncio.timeout(REPORT_LIMIT_S):
                await register.change(damaged, _believe)
        except (StoreRefused, StartError, TimeoutError) as failure:
            log.error("the other nodes could not be told", reason=str(failure))

    async def _run_session_if_allowed(self, refusals: Outage) -> float:
        """Returns the seconds until the next session. A store that refuses a node may have rights taken for a while.

        Raises StoreRefused if that is for good, or if it has never let the node in: then its settings are wrong.
        """
        try:
            await self._run_session(refusals)
        except FINAL:
            raise
        except StoreRefused as error:
            if not self.secret:
                raise
            refusals.note(error)
            return REFUSED_PAUSE_S
        return REJOIN_PAUSE_S

    async def _run_session(self, refusals: Outage) -> None:
        is_draining = self.session is not None and self.session.is_draining
        identity = self._identity._replace(is_draining=is_draining)
        session = Session(self.store, self._environment, identity, self)
        if self.known_file is not None:
            await self.known_file.compare(self.store)
        if self.register is not None:
            await require_cluster(self.store, self.register.cluster_id)
        try:
            await session.register.create(self.counts)
            self.secret = await self._read_secret()
            self.session = session
            is_new = await session.join()
            if session.register.current is not None:
                self._start_session(session.register.current, is_new=is_new)
            refusals.end()
            log.info("joined the cluster", session=session.name)
            await session.run()
        except Fenced as error:
            session.fence(str(error))
        if session.refusal is not None:
            raise session.refusal

    def _start_session(self, register: Register, *, is_new: bool) -> None:
        self.producer_ids.start_session(register.version)
        if self.followed is not None:
            self.followed.joined(register.cluster_id, is_new=is_new)

    async def _read_secret(self) -> bytes:
        parts = [self._environment.token() for _ in range(SECRET_BYTES // 8)]
        return await settle(self.store, SECRET_KEY, b"".join(parts))

    # SessionListener -------------------------------------------------------------------------------------------------

    def gained(self, epochs: Mapping[int, int]) -> None:
        if self.register is not None:
            self.gained_versions |= dict.fromkeys(epochs, self.register.version)
        for listener in self._listeners:
            listener.gained(epochs)

    def lost(self, partitions: Collection[int]) -> None:
        for listener in self._listeners:
            listener.lost(partitions)

    def fenced(self, reason: str) -> None:
        for listener in self._listeners:
            listener.fenced()

    def register_changed(self) -> None:
        self.on_register_changed()

    def confirmed(self, register: Register, known: Known) -> None:
        if self.known_file is not None:
            self.known_file.save_in_thread(Note(register.cluster_id, register.accepted_losses, known))

    def followed_key(self) -> str | None:
        return None if self.followed is None else self.followed.next_key()

    def followed_unchanged(self, key: str, asked_s: float) -> None:
        if self.followed is not None:
            self.followed.note_unchanged(key, asked_s)

    def followed_changed(self) -> None:
        if self.followed is not None:
            self.followed.notice()


async def _believe() -> None:
    """No name of a register's version is used again while its newest ones are there."""


async def require_cluster(store: Store, served: str) -> None:
    """Raises StartError if the store does not have the cluster any more in which this process has ``served``."""
    newest = await newest_register(PatientStore(store))
    if newest is None or newest.cluster_id != served:
        holds = "no cluster" if newest is None else f"the cluster {newest.cluster_id}"
        raise StartError(f"the store has {holds}, but this node served the cluster {served}: restore the store")
