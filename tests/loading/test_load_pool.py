"""Child processes that load partitions as they become ready."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from harness import async_test

from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.runtime.loading.loader import processors
from callboard.runtime.loading.pool import LoadPool
from callboard.runtime.log.format.batch import encode_batch, frame_record
from callboard.runtime.log.format.records import encode
from callboard.runtime.log.pieces import LoadJob, LoadPiece, PackedGroups

JOBS = 5


def job_of(root: Path, number: int) -> LoadJob:
    """A partition with one group, which has the number in its name."""
    folder = root / f"__consumer_offsets-{number}"
    folder.mkdir()
    record = OffsetRecord(f"group-{number}", "orders", 0, OffsetValue(7, -1, "", 5))
    data = encode_batch(0, 5, 5, [frame_record(0, 0, *encode(record))])
    (folder / "00000000000000000000.log").write_bytes(data)
    return LoadJob(number, str(folder), False, len(data))


@async_test
async def test_partitions_are_loaded_by_few_processes_which_end_afterwards(tmp_path: Path) -> None:
    pool, loaded = LoadPool(), list[tuple[int, str]]()

    def take(job: LoadJob, piece: LoadPiece) -> None:
        if isinstance(piece, PackedGroups):
            loaded.extend((job.partition, name) for name in piece.groups)

    pool.prepare()
    jobs = [job_of(tmp_path, number) for number in range(JOBS)]
    loads = [asyncio.ensure_future(pool.load(job, take)) for job in jobs]
    await asyncio.sleep(0)
    assert len(pool._workers) <= processors()
    await asyncio.gather(*loads)
    assert sorted(loaded) == [(number, f"group-{number}") for number in range(JOBS)]
    while pool._workers:
        await asyncio.sleep(0.02)


@async_test
async def test_error_of_one_load_is_raised_for_it_alone(tmp_path: Path) -> None:
    pool, loaded = LoadPool(), set[int]()

    def take(job: LoadJob, _piece: LoadPiece) -> None:
        if job.partition == 0:
            raise ValueError("not this one")
        loaded.add(job.partition)

    loads = [pool.load(job_of(tmp_path, number), take) for number in range(2)]
    failed, other = await asyncio.gather(*loads, return_exceptions=True)
    assert (str(failed), other, loaded) == ("not this one", None, {1})


@async_test
async def test_load_that_was_given_up_takes_nothing(tmp_path: Path) -> None:
    pool, taken = LoadPool(), set[int]()
    jobs = [job_of(tmp_path, number) for number in range(2)]
    given_up = asyncio.ensure_future(pool.load(jobs[0], lambda job, _piece: taken.add(job.partition)))
    await asyncio.sleep(0)
    given_up.cancel()
    await pool.load(jobs[1], lambda job, _piece: taken.add(job.partition))
    assert taken == {1}


@async_test
async def test_loads_fail_if_no_worker_can_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They would wait for ever."""

    async def fail(_self: LoadPool) -> None:
        raise RuntimeError("no worker")

    monkeypatch.setattr(LoadPool, "_next", fail)
    with pytest.raises(RuntimeError, match="no worker"):
        await LoadPool().load(job_of(tmp_path, 0), lambda _job, _piece: None)


@async_test
async def test_processes_for_expected_jobs_wait_for_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are as many as there may be, and stay although there is nothing to load yet."""
    monkeypatch.setattr("callboard.runtime.loading.pool.LINGER_S", 0.001)
    pool, loaded = LoadPool(), set[int]()
    pool.expect(0)
    assert not pool._workers
    pool.expect(JOBS)
    pool.expect(JOBS)
    workers = set(pool._workers)
    assert len(workers) == min(JOBS, processors())
    await asyncio.sleep(0.1)
    assert pool._workers == workers
    await pool.load(job_of(tmp_path, 0), lambda job, _piece: loaded.add(job.partition))
    assert loaded == {0}
    pool._expected_until_s = 0.0
    while pool._workers:
        await asyncio.sleep(0.02)
