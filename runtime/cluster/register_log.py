"""RegisterLog: the versions of the register."""

from __future__ import annotations

import asyncio
from base64 import urlsafe_b64encode

from ..common.errors import StartError
from ..log.partition_counts import PartitionCounts
from .continuity import StoreOlder
from .keys import REGISTER, register_key
from .manifest import Manifest, create_manifest, newest_manifest
from .register import Register, decode_register, empty_register
from .session_environment import SessionEnvironment
from .store import Store, settle
from .version_log import VersionLog, newest_version

VERSIONS_KEPT = 200


async def newest_register(store: Store) -> Register | None:
    """None if there is no cluster in the store."""
    return await newest_version(store, REGISTER, decode_register)


class RegisterLog(VersionLog[Register]):
    """``reads_damaged``: without it, a register that says that the store is damaged raises StoreOlder."""

    def __init__(self, store: Store, environment: SessionEnvironment, *, reads_damaged: bool = False) -> None:
        super().__init__(store, environment, REGISTER, decode_register, VERSIONS_KEPT)
        self._reads_damaged = reads_damaged

    async def _read(self) -> Register:
        register = await super()._read()
        if register.damage and not self._reads_damaged:
            raise StoreOlder(register.damage)
        return register

    async def create(self, counts: PartitionCounts) -> Register:
        """The register, which is created first if the store is empty.

        Raises StartError for other partition counts or another session timeout.
        """
        if not await self._store.list(REGISTER):
            await asyncio.gather(*(self._create_manifest(partition) for partition in range(sum(counts))))
            token = self._environment.token
            cluster_id = urlsafe_b64encode(token() + token()).rstrip(b"=").decode()
            register = empty_register(counts, token().hex(), cluster_id, self._environment.ttl_ms)
            await settle(self._store, register_key(0), register.encode())
        register = await self.read()
        if register.counts != counts:
            raise StartError(
                f"the cluster has {register.counts}, expected {counts}; start this node with the cluster's numbers"
                " (--set offsets_topic_num_partitions=N, --set transaction_state_log_num_partitions=N)"
            )
        if register.session_timeout_ms != self._environment.ttl_ms:
            raise StartError(
                f"this node has cluster_session_timeout_ms={self._environment.ttl_ms}, but the cluster was created "
                f"with {register.session_timeout_ms}, and all nodes must agree; start this node with --set "
                f"cluster_session_timeout_ms={register.session_timeout_ms}"
            )
        return register

    async def _create_manifest(self, partition: int) -> None:
        """Afterwards a partition without a manifest is damaged, never empty.

        Raises StartError if there is one with content, from an import that has not come to the register.
        """
        if await create_manifest(self._store, Manifest(partition, 0, self._environment.token().hex(), 0)):
            return
        newest = await newest_manifest(self._store, partition)
        if newest.segments and not await self._store.list(REGISTER):
            raise StartError(
                f"the store has content of partition {partition} and no cluster: an import runs, or was interrupted; "
                "wait for it, or empty the store and import again"
            )
