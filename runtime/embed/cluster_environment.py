"""Connects a node to its cluster, for ``serve --cluster`` and embedded coordinators."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from ..client.security import ClientSecurity
from ..cluster.cluster_node import ClusterNode
from ..cluster.compaction.cleaner import ChildWorkers, ClusterCleaner
from ..cluster.connection import ClusterConnection
from ..cluster.engines import StoreEngine, engine_of, open_store
from ..cluster.known_file import KnownFile
from ..cluster.session_environment import SessionEnvironment
from ..common.errors import StartError
from ..disk.disk import Disk
from ..log.partition_counts import PartitionCounts
from ..node.environment import Environment
from ..node.listening import Sockets, advertised_addresses
from ..settings.client_settings import ClientSettings
from ..settings.table import Options, Settings

SCRATCH = "cluster-scratch"
"""The folder, in the data folder, for files of large partitions while they are loaded."""
COMPACTION = "compaction"
"""The folder in it for files of a partition while it is compacted."""

NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_.-]+")


def connect(
    settings: Settings, options: Options, listening_sockets: Sockets, on_refused: Callable[[Exception], None]
) -> Environment:
    """The environment of a server in a cluster. See ``make_connection``."""
    connection = make_connection(settings, options, listening_sockets, on_refused, options.data / SCRATCH)
    return Environment(disk=Disk(options.file_mode), cluster=connection)


def make_connection(
    settings: Settings,
    options: Options,
    listening_sockets: Sockets,
    on_refused: Callable[[Exception], None],
    scratch: Path | None,
) -> ClusterConnection:
    """What a node needs of the cluster. Raises StartError for a bad URL or a missing library.

    ``on_refused`` is called with the error if the node cannot take part in the cluster. ``scratch``: a folder for
    files of large partitions; None to load them in this process, and to keep nothing in a data folder.
    """
    addresses = advertised_addresses(options, listening_sockets)
    host, port = addresses[options.inter_broker_listener]
    name = options.cluster.node_name or NOT_IN_NAMES.sub("-", f"{host}-{port}").strip("-")
    counts = PartitionCounts(settings.offsets_topic_num_partitions, settings.transaction_state_log_num_partitions)

    def make_cleaner(node: ClusterNode, settings: Settings) -> ClusterCleaner:
        assert scratch is not None, "only a node with a folder cleans"
        return ClusterCleaner(node, ChildWorkers(options.cluster.url, counts, scratch / COMPACTION), settings)

    return ClusterConnection(
        open_store(options.cluster.url, name),
        name,
        addresses,
        counts,
        max_message_bytes=settings.message_max_bytes,
        on_failed=on_refused,
        scratch=scratch,
        known_file=None if scratch is None else KnownFile(Disk(options.file_mode), options.data),
        environment=session_environment(settings, engine_of(options.cluster.url)),
        is_exclusive=options.cluster.is_exclusive,
        inter_broker_listener=options.inter_broker_listener,
        peer_security=peer_security(options),
        make_cleaner=None if scratch is None else make_cleaner,
    )


def peer_security(options: Options) -> ClientSecurity:
    """How this node connects to others: with the protocol, the certificate and the authorities of its own listener."""
    listener = next(each for each in options.listeners if each.name == options.inter_broker_listener)
    return ClientSecurity(ClientSettings(listener.protocol, listener.settings))


def session_environment(settings: Settings, engine: StoreEngine) -> SessionEnvironment:
    timeout_ms, least_ms = settings.cluster_session_timeout_ms, engine.session_timeout_ms_min
    if timeout_ms < least_ms:
        raise StartError(
            f"cluster_session_timeout_ms is {timeout_ms}, but a store like {engine.example} does not take signs of"
            f" life so often; expected at least {least_ms}: --set cluster_session_timeout_ms={least_ms}"
        )
    return SessionEnvironment(
        ttl_s=timeout_ms / 1000,
        checkpoint_interval_s=engine.checkpoint_interval_s,
        continuity_interval_s=engine.checkpoint_interval_s,
        checkpoint_rounds=engine.checkpoint_rounds,
        pack_rounds=engine.pack_rounds,
    )
