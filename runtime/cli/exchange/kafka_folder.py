"""The folder of a Kafka that is stopped: where its partitions lie, and what keeps it from starting meanwhile.

Kafka locks ``.lock`` in each of its ``log.dirs`` with a POSIX lock. Whoever has that lock knows that no Kafka runs, and
that none starts: it refuses. (Callboard locks its own ``.lock`` in another way, so the two would not see each other.)
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

META = "meta.properties"
"""Each of Kafka's log folders has it: whose it is."""

COUNT_SETTINGS = {TOPIC: "offsets.topic.num.partitions", TRANSACTIONS_TOPIC: "transaction.state.log.num.partitions"}

_PARTITION = re.compile(rf"({re.escape(TOPIC)}|{re.escape(TRANSACTIONS_TOPIC)})-([0-9]{{1,9}})")


@contextmanager
def stopped(kafkas: Sequence[Path], *, is_written: bool) -> Iterator[None]:
    """Keep Kafka off its folders. StartError when one runs, or a folder to be written is none of Kafka's.

    What is only read may be a copy of some of its folders, without a lock.
    """
    with ExitStack() as locks:
        for kafka in kafkas:
            if not kafka.is_dir():
                raise StartError(f"{kafka}: found no folder, expected one of Kafka's log.dirs; check the path")
            if is_written and not (kafka / META).exists():
                raise StartError(f"{kafka}: found no {META}, expected one of Kafka's log.dirs; check the path")
            locks.enter_context(_locked(kafka / LOCK_NAME, is_written))
        yield


@contextmanager
def _locked(path: Path, is_written: bool) -> Iterator[None]:
    if not is_written and not path.exists():
        yield
        return
    flags, kind = (os.O_RDWR | os.O_CREAT, fcntl.LOCK_EX) if is_written else (os.O_RDONLY, fcntl.LOCK_SH)
    is_new = not path.exists()
    fd = Disk().open(path, flags)
    try:
        if is_new:
            copy_owner_and_mode(path.with_name(META), path)  # Kafka opens it to write, as its own user
        try:
            fcntl.lockf(fd, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            raise StartError(f"{path.parent}: a Kafka runs on it, expected a stopped one; stop it first") from None
        yield
    finally:
        os.close(fd)


def partition_folders(names: Iterable[str]) -> dict[str, dict[int, str]]:
    """The names of folders by topic and partition. Kafka's names for what it has put aside are none of these."""
    found: dict[str, dict[int, str]] = {TOPIC: {}, TRANSACTIONS_TOPIC: {}}
    for name in names:
        match = _PARTITION.fullmatch(name)
        if match and name == f"{match[1]}-{int(match[2])}":
            found[match[1]][int(match[2])] = name
    return found
