"""``callboard cluster import``: the data folder of a single node becomes a cluster in an empty store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from ...cluster.imports import ClusterContent, NotEmpty, create_cluster, first_epoch_after
from ...cluster.session_environment import random_token
from ...cluster.store import Store
from ...cluster.topics_document import SharedTopic
from ...disk.disk import Disk, read_file
from ...log.folder import DEFAULT_PARTITIONS, INFO_NAME, TOPICS_NAME, FolderInfo, parse_info
from ...log.manifest import log_files
from ...log.partition import TOPIC
from ...log.partition_counts import PartitionCounts
from ...log.reading.damage_scan import BatchRun, scan_runs_past_damage
from ...security.document import SecurityDocument
from ...security.store import SecurityStore
from ...settings.dynamic import FILE_NAME as SETTINGS_NAME
from ...settings.dynamic import DynamicSettings
from ...settings.table import Settings, format_value
from ...topics.end_slots import decode_file
from ...topics.opening import ENDS_NAME
from ...topics.store import TopicsFile, load_table
from ..log.repair import require_stopped_server
from ..log.scan import LogPartition, find_partitions
from .errors import CommandFailed
from .folder_content import ContentCounts, count_content


class ImportResult(NamedTuple):
    """``settings``: what was changed while the node ran, as NAME=VALUE."""

    partitions: PartitionCounts
    content: ContentCounts
    settings: list[str]


async def import_folder(store: Store, data: Path, session_timeout_ms: int, disk: Disk) -> ImportResult:
    """``store`` is patient. Raises StartError and CommandFailed."""
    with require_stopped_server(data, disk):
        info = parse_info(data / INFO_NAME, read_file(disk, data / INFO_NAME))
        partitions = find_partitions(data, disk=disk)
        table = _read_table(data, disk)
        counts = count_content(partitions, disk)._replace(topics=0 if table is None else len(table.topics))
        settings, configs = _read(disk, data / SETTINGS_NAME), _changed_settings(data, disk)
        content = _content(info, partitions, table, counts, settings, session_timeout_ms, data, disk)
        content = content._replace(groups=configs.groups.given, security=_security(data, disk))
        try:
            await create_cluster(store, content, random_token)
        except NotEmpty as error:
            raise CommandFailed(
                f"the store has {error} already, expected an empty one: an import makes a new cluster; give another "
                "URL, or remove everything there (an import that was interrupted leaves something)"
            ) from None
    return ImportResult(content.counts, counts, _listed(configs))


def _content(
    info: FolderInfo,
    partitions: list[LogPartition],
    table: TopicsFile | None,
    counts: ContentCounts,
    settings: bytes | None,
    session_timeout_ms: int,
    data: Path,
    disk: Disk,
) -> ClusterContent:
    numbers = PartitionCounts(info.offsets_partitions, info.transactions_partitions or DEFAULT_PARTITIONS)
    sources = {
        partition.number + (0 if partition.topic == TOPIC else numbers.offsets): partition for partition in partitions
    }

    def batches(number: int) -> Iterator[bytes]:
        return _batches(sources[number], disk) if number in sources else iter(())

    given_out = -1 if table is None else table.next_producer_id - 1
    return ClusterContent(
        info.cluster_id,
        numbers,
        session_timeout_ms,
        batches,
        {} if table is None else _topics(table, data, disk),
        max(given_out, counts.producer_id_max),
        settings,
    )


def _batches(partition: LogPartition, disk: Disk) -> Iterator[bytes]:
    """Those of all files of a partition. Damage was looked for before."""
    for file in log_files(disk, partition.folder).files:
        for item in scan_runs_past_damage(disk, file.path, file.base):
            if not isinstance(item, BatchRun):
                raise CommandFailed(f"{item}; see callboard log verify")
            for batch in item.batches:
                start = batch.position - item.position
                yield bytes(item.data[start : start + batch.size])


def _read_table(data: Path, disk: Disk) -> TopicsFile | None:
    loaded = load_table(data / TOPICS_NAME, disk)
    return None if loaded is None else loaded.table


def _topics(table: TopicsFile, data: Path, disk: Disk) -> Mapping[str, SharedTopic]:
    """Topics are empty in the cluster, and begin after the offsets that they had."""
    ends = decode_file(_read(disk, data / ENDS_NAME) or b"") or []
    topics = {}
    for row in table.topics:
        slots = ends[row.first_slot : row.first_slot + row.partitions]
        end = max((slot for slot in slots if slot is not None), default=0)
        topics[row.name] = SharedTopic(row.topic_id, row.partitions, first_epoch_after(end), row.settings)
    return topics


def _read(disk: Disk, path: Path) -> bytes | None:
    try:
        return read_file(disk, path)
    except FileNotFoundError:
        return None


def _changed_settings(data: Path, disk: Disk) -> DynamicSettings:
    configs = DynamicSettings(Settings(), allows_unsafe=True)
    configs.load(data, disk)
    return configs


def _security(data: Path, disk: Disk) -> SecurityDocument | None:
    store = SecurityStore(data, disk, bytes)
    return store.document if store.load() else None


def _listed(configs: DynamicSettings) -> list[str]:
    """The changed settings of the server. A change for this broker overrides one for all."""
    changes = {**configs.all_brokers, **configs.broker}
    return [f"{name}={format_value(value)}" for name, value in sorted(changes.items())]
