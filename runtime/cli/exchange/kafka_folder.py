"""The folder of a stopped Kafka: its partitions, and the lock that keeps Kafka from starting.

Kafka locks ``.lock`` in each of its ``log.dirs`` with a POSIX lock. While this process holds that lock, no Kafka runs
on the folder, and Kafka refuses to start. (Callboard locks its own ``.lock`` differently, so that lock does not exclude
Kafka.)
"""

from __future__ import annotations

import fcntl
import os
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ...common.errors import StartError
from ...disk.disk import Disk
from ...disk.modes import copy_owner_and_mode
from ...log.folder import LOCK_NAME
from ...log.partition import TOPIC, TRANSACTIONS_TOPIC

META_PROPERTIES = "meta.properties"
"""The file that every log folder of Kafka has."""

COUNT_SETTINGS = {TOPIC: "offsets.topic.num.partitions", TRANSACTIONS_TOPIC: "transaction.state.log.num.partitions"}

_PARTITION = re.compile(rf"({re.escape(TOPIC)}|{re.escape(TRANSACTIONS_TOPIC)})-([0-9]{{1,9}})")


@contextmanager
def require_stopped_kafka(folders: Sequence[Path], *, is_written: bool) -> Iterator[None]:
    """Keep Kafka from starting. Raises StartError when Kafka runs, or a folder to be written is not one of Kafka's.

    A folder that is only read may be a copy of some of Kafka's folders, without a lock.
    """
    with ExitStack() as locks:
        for folder in folders:
            if not folder.is_dir():
                raise StartError(f"{folder}: found no folder, expected one of Kafka's log.dirs; check the path")
            if is_written and not (folder / META_PROPERTIES).exists():
                raise StartError(
                    f"{folder}: found no {META_PROPERTIES}, expected one of Kafka's log.dirs; check the path"
                )
            locks.enter_context(_hold_lock(folder / LOCK_NAME, is_written))
        yield


@contextmanager
def _hold_lock(path: Path, is_written: bool) -> Iterator[None]:
    if not is_written and not path.exists():
        yield
        return
    flags, kind = (os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) if is_written else (os.O_RDONLY, fcntl.LOCK_SH)
    is_new = not path.exists()
    fd = Disk().open(path, flags)
    try:
        if is_new:
            copy_owner_and_mode(path.with_name(META_PROPERTIES), path)  # Kafka opens it to write, as its own user
        try:
            fcntl.lockf(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(f"{path.parent}: Kafka is running on it, expected a stopped one; stop it first") from None
        yield
    finally:
        os.close(fd)


def partition_folders(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """The folders of partitions, by topic and number, without those that Kafka renamed for deletion."""
    names_by_topic: dict[str, dict[int, str]] = {TOPIC: {}, TRANSACTIONS_TOPIC: {}}
    for name in names:
        match = _PARTITION.fullmatch(name)
        if match and name == f"{match[1]}-{int(match[2])}":
            names_by_topic[match[1]][int(match[2])] = name
    return names_by_topic
