"""Reads the log of a cluster from its store: every task opens the store itself, so workers need no common file system.

The segments of a partition are read into memory, as the files that the readers of a local log know. What is only in
the WALs of the nodes is not read: it comes to segments with the next checkpoint.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import TypeVar

from ..runtime.cluster.compaction.files import manifest_file, segment_path
from ..runtime.cluster.content import Superseded, read_content
from ..runtime.cluster.engines import open_store, without_password
from ..runtime.cluster.manifest import Manifest, newest_manifest
from ..runtime.cluster.patient_store import PatientStore
from ..runtime.cluster.register_log import newest_register
from ..runtime.cluster.store import Store
from ..runtime.log.partition import folder_name
from .files import LogLocation
from .sent_files import SentDisk, SentFile

T = TypeVar("T")
LIMIT_S = 300.0
"""Of everything that a call of this module does. A store that does not answer is asked again until then."""
ROOT = Path("/cluster")


class ClusterLog:
    """``url``: of the store. Each method opens the store, and raises ValueError if there is no cluster in it."""

    def __init__(self, url: str) -> None:
        self._url = url

    def check(self) -> None:
        """Report a wrong URL at once."""
        self._with_store(self._manifests)

    def sizes(self) -> Mapping[int, int]:
        """The bytes of each partition of offsets."""
        manifests = self._with_store(self._manifests)
        return {number: sum(segment.size for segment in manifests[number].segments) for number in manifests}

    def ends(self) -> Mapping[int, int]:
        """The offset after the last record in the segments of each partition of offsets."""
        return {number: manifest.end for number, manifest in self._with_store(self._manifests).items()}

    def partition(self, number: int, first: int = 0) -> LogLocation:
        """The files of a partition, from the segment with the offset ``first`` on."""

        async def read(store: Store) -> LogLocation:
            files = {path: SentFile(data) for path, data in (await _files(store, number, first)).items()}
            return LogLocation(SentDisk(files), {number: _folder(number)}, None)

        return self._with_store(read)

    async def _manifests(self, store: Store) -> Mapping[int, Manifest]:
        register = await newest_register(store)
        if register is None:
            raise ValueError(f"{without_password(self._url)} has no cluster: no node has started with it yet")
        numbers = range(register.counts.offsets)
        return dict(
            zip(numbers, await asyncio.gather(*(newest_manifest(store, each) for each in numbers)), strict=True)
        )

    def _with_store(self, work: Callable[[Store], Awaitable[T]]) -> T:
        return asyncio.run(_with_store(self._url, work))


async def _with_store(url: str, work: Callable[[Store], Awaitable[T]]) -> T:
    store = open_store(url, f"spark-{os.getpid()}")
    try:
        async with asyncio.timeout(LIMIT_S):
            return await work(PatientStore(store))
    except TimeoutError:
        raise TimeoutError(f"{without_password(url)} has not answered in {LIMIT_S:.0f} s; is it available?") from None
    finally:
        await store.close()


async def _files(store: Store, number: int, first: int) -> dict[str, bytes]:
    """By path. Raises SegmentDamaged."""
    while True:
        manifest = await newest_manifest(store, number)
        segments = tuple(segment for segment in manifest.segments if segment.end > first)
        try:
            contents = await read_content(store, manifest._replace(segments=segments))
        except Superseded:
            continue  # another node has taken the partition over, and its segments were replaced
        files = {str(_folder(number) / segment_path(segment)): data for segment, data in contents}
        if (stored := manifest_file([segment for segment, _ in contents])) is not None:
            files[str(_folder(number) / stored[0])] = stored[1]
        return files


def _folder(number: int) -> Path:
    return ROOT / folder_name(number)
