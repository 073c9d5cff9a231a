"""``callboard cluster export``: the state of a cluster as a data folder for a single node, while nodes serve.

A folder under the final name is complete, see ``new_folder``.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from ....actors.ports import Random
from ...cluster.cut import Cut, Moved, content_of, make_cut
from ...cluster.keys import IMPORTED_SETTINGS_KEY
from ...cluster.register import Register
from ...cluster.session_producer_ids import IDS_PER_SESSION
from ...cluster.store import Store
from ...cluster.topic_leadership import OFFSETS_PER_EPOCH, led_with
from ...cluster.topics_document import SharedTopic
from ...disk.disk import Disk
from ...log.partition import TOPIC, TRANSACTIONS_TOPIC, folder_name
from ...settings.dynamic import SavedSettings, decode_settings, encode_settings
from ...settings.group_configs import AllOverrides
from ...topics.ids import new_topic_id
from ..log.scan import find_partitions
from ..new_folder import make_new_folder
from .errors import CommandFailed
from .folder_content import ContentCounts, count_content
from .folder_writer import FolderWriter, StoredTopic

TRIES = 200
TRY_AGAIN_S = 0.02


class ExportResult(NamedTuple):
    register_version: int
    content: ContentCounts


async def export_folder(store: Store, target: Path, disk: Disk, random: Random) -> ExportResult:
    """``store`` is patient and has a register. ``target`` does not exist, or is empty.

    Raises CommandFailed, OSError, and StartError as ``make_new_folder`` does.
    """
    for _ in range(TRIES):
        try:
            cut = await make_cut(store)
            with make_new_folder(disk, target) as folder:
                return await _write(store, cut, folder, disk, random)
        except Moved as error:
            reason = error
            await asyncio.sleep(TRY_AGAIN_S)
    raise CommandFailed(f"no consistent state in {TRIES} tries ({reason}); try again when it is less busy")


async def _write(store: Store, cut: Cut, root: Path, disk: Disk, random: Random) -> ExportResult:
    """Raises Moved."""
    register = cut.register
    writer = FolderWriter(root, register.cluster_id, register.counts, disk)
    for partition in range(len(register.owners)):
        writer.write_partition(_folder_name(register, partition), await content_of(store, cut, partition))
    topics = [_stored(name, topic, register) for name, topic in cut.topics.topics.items()]
    writer.write_topics(topics, new_topic_id(random), (register.version + 1) * IDS_PER_SESSION)
    [imported] = await store.get([IMPORTED_SETTINGS_KEY])
    settings = _with_groups(imported, cut.topics.groups)
    if settings is not None:
        writer.write_settings(settings)
    if cut.topics.security is not None:
        writer.write_security(cut.topics.security)
    writer.finish()
    counts = count_content(find_partitions(root, disk=disk), disk)
    return ExportResult(register.version, counts._replace(topics=len(topics)))


def _with_groups(imported: bytes | None, groups: AllOverrides) -> bytes | None:
    """The content of the file of changed settings, with the settings that groups have now; None for no file."""
    saved = SavedSettings() if imported is None else decode_settings(imported)
    return imported if saved.groups == groups else encode_settings(saved._replace(groups=groups))


def _folder_name(register: Register, partition: int) -> str:
    offsets = register.counts.offsets
    return (
        folder_name(partition, TOPIC) if partition < offsets else folder_name(partition - offsets, TRANSACTIONS_TOPIC)
    )


def _stored(name: str, topic: SharedTopic, register: Register) -> StoredTopic:
    """It goes on after all offsets that the leaders in the cluster may have given."""
    epoch = register.epochs[led_with(name, register.counts.offsets)]
    end = max(epoch + 1 - topic.first_epoch, 0) * OFFSETS_PER_EPOCH
    return StoredTopic(name, topic.topic_id, topic.partitions, end, topic.settings)
