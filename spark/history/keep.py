"""Records of the log into the history's table: all of the closed segments that it has not yet, each exactly once.

A run takes a log partition from the offset that the newest commit names up to the end of its closed segments. It
writes the rows under that first offset, makes them durable, counts them, and then commits; after that the mark in the
data folder lets compaction go as far. So a run may be killed anywhere: what it wrote without a commit does not count,
and the next one, which begins at the same offset, writes over it. The records are the same, because compaction waits.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import pyarrow as pa
from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from ...runtime.common.errors import StartError
from ...runtime.disk.disk import Disk, file_size, read_file
from ...runtime.disk.modes import disk_like
from ...runtime.engine.clock import wall_clock_ms
from ...runtime.log.compaction.history import HistoryMark, read_history_mark, wait_for_compactions, write_history_mark
from ...runtime.log.folder import INFO_NAME as DATA_INFO_NAME
from ...runtime.log.folder import parse_info
from ...runtime.log.format.errors import Damage
from ...runtime.log.manifest import LogFile, log_files
from ...runtime.log.reading.damage_scan import scan_past_damage
from ...runtime.log.reading.partition_reader import partition_folders
from ...runtime.log.recovery.missing import missing_files
from ..columns import ALL, ddl
from ..options import Options
from ..scan import Scan
from ..session import in_short
from ..tasks import TASK_BYTES, freeze_once, spread
from .table import DAY, FOLDER, FROM_OFFSET, INFO_NAME, LAYOUT, PLAIN_FORMATS, HistoryTable, Progress, TableInfo

KINDS = frozenset({"offset", "group", "marker", "unknown", "damage"})
"""What has a row. Damage is a record that nothing can read though its checksum is right."""

_SEEN = {"log_partition": "int", "end": "bigint", "records": "bigint", "trouble": "string"}
_SEEN_ARROW = pa.schema(
    [("log_partition", pa.int32()), ("end", pa.int64()), ("records", pa.int64()), ("trouble", pa.string())]
)

TABLE_SCHEMA = f"{ddl(list(ALL))}, {DAY} date, {FROM_OFFSET} bigint"

Tell = Callable[[str], None]


class Take(NamedTuple):
    """Offsets from ``first`` up to ``end`` of one log partition, which lie in ``size`` bytes."""

    log_partition: int
    folder: Path
    first: int
    end: int
    size: int


class Seen(NamedTuple):
    """What a look at a take has found: up to where it is good, how many records that is, what is wrong behind it."""

    log_partition: int
    end: int
    records: int
    trouble: str | None


class _Good(NamedTuple):
    """What can be taken of a take, and how many records that is."""

    take: Take
    records: int


class Kept(NamedTuple):
    """What a run has taken. ``troubles``: what is damaged, one line a log partition; it was taken up to there.

    ``missing``: how many offsets of what was taken have no record any more, because compaction had been there.
    """

    partitions: int
    records: int
    commit: int
    troubles: tuple[str, ...]
    seconds: float
    missing: int


def keep(
    spark: SparkSession,
    data: str | Path,
    table: str | Path,
    format: str = "parquet",
    *,
    disk: Disk | None = None,
    clock_ms: Callable[[], int] = wall_clock_ms,
    tell: Tell = lambda words: None,
) -> Kept:
    """Take what the closed segments of the data folder ``data`` have and ``table`` has not. Makes the table if needed.

    From then on compaction goes no further than the history has gone. StartError when the folder or the table is not
    what it should be; OSError when the disk fails; an error of Spark's when the format cannot be written.
    """
    began, data = time.perf_counter(), Path(data).absolute()
    disk = disk or disk_like(data)
    folders = folders_of(data)
    refuse_table(data, Path(table), disk)
    if format not in PLAIN_FORMATS and not (Path(table) / FOLDER / INFO_NAME).exists():
        try_format(spark, Path(table).absolute(), format)
    made = _table(disk, data, Path(table), format, clock_ms())
    with made.alone():
        progress = made.progress()
        made.remove_leftovers(progress)
        _begin(disk, data, made, progress, folders)
        takes, troubles = _takes(disk, folders, progress)
        seen = _look(spark, takes, tell) if takes else []
        good = [_Good(take._replace(end=one.end), one.records) for take, one in zip(takes, seen, strict=True)]
        good = [one for one in good if one.take.end > one.take.first]
        if good:
            tell(f"writing {sum(one.records for one in good):,} records of {len(good)} log partitions")
            _move(spark, made, good)
            progress = _after(disk, progress, good, clock_ms())
            made.commit(progress, [_took(one) for one in good])
        write_history_mark(disk, data, HistoryMark(str(made.path), made.info.table_id, progress.taken_to))
    troubles += [one.trouble for one in seen if one.trouble]
    records = sum(one.records for one in good)
    missing = sum(take.end - take.first for take, _ in good) - records
    return Kept(len(good), records, progress.number, tuple(troubles), time.perf_counter() - began, missing)


def folders_of(data: Path) -> dict[int, Path]:
    """The log partitions of a data folder of ours. StartError."""
    if not (data / DATA_INFO_NAME).is_file():
        raise StartError(
            f"{data}: found no {DATA_INFO_NAME}, expected the data folder of a server of ours; check the path"
        )
    return partition_folders(data)


def refuse_table(data: Path, path: Path, disk: Disk) -> None:
    """Raise StartError for a table that the history of this data folder cannot go to."""
    mark = read_history_mark(disk, data)
    if not (path / FOLDER / INFO_NAME).exists():
        if mark is not None and path.absolute() != Path(mark.table):
            raise StartError(_goes_to(data, mark))
        return
    table, cluster_id = HistoryTable.open(path, disk), _cluster_id(disk, data)
    if table.info.cluster_id != cluster_id:
        raise StartError(
            f"{path}: found the history of cluster {table.info.cluster_id}, expected that of {cluster_id}, which"
            f" {data} belongs to; choose another table"
        )
    if mark is not None and mark.table_id != table.info.table_id:
        raise StartError(_goes_to(data, mark))


def try_format(spark: SparkSession, path: Path, format: str) -> None:
    """Write a table without rows beside ``path``, and remove it. StartError when Spark cannot: from the first run on
    compaction waits for the table, so it must not be one that can never be written."""
    trial = path.with_name(f".{path.name}.trial")
    try:
        _save(spark.createDataFrame([], TABLE_SCHEMA), format, trial)
    except (PySparkException, Py4JError) as error:
        raise StartError(f"bad --format '{format}': Spark cannot write a history with it: {in_short(error)}") from None
    finally:
        shutil.rmtree(trial, ignore_errors=True)


def _table(disk: Disk, data: Path, path: Path, format: str, now_ms: int) -> HistoryTable:
    """The table of this data folder's history, made if there is none."""
    if read_history_mark(disk, data) is None and not (path / FOLDER / INFO_NAME).exists():
        return HistoryTable.create(path, TableInfo(str(uuid4()), _cluster_id(disk, data), format, now_ms), disk)
    return HistoryTable.open(path, disk)


def _cluster_id(disk: Disk, data: Path) -> str:
    return parse_info(data / DATA_INFO_NAME, read_file(disk, data / DATA_INFO_NAME)).cluster_id


def _goes_to(data: Path, mark: HistoryMark) -> str:
    return f"{data}: its history goes to {mark.table}; go on with that one, or run callboard history off first"


def _begin(disk: Disk, data: Path, table: HistoryTable, progress: Progress, folders: dict[int, Path]) -> None:
    """From here on compaction waits for us. Also where the mark is there already: who put it may have been killed."""
    if read_history_mark(disk, data) is None:
        write_history_mark(disk, data, HistoryMark(str(table.path), table.info.table_id, progress.taken_to))
    wait_for_compactions(disk, folders.values())


def _takes(disk: Disk, folders: dict[int, Path], progress: Progress) -> tuple[list[Take], list[str]]:
    """What there is to take, and the log partitions that are not what they were."""
    takes, troubles = [], []
    for number, folder in folders.items():
        first = progress.taken_to.get(number, 0)
        files = log_files(disk, folder).files
        closed = [file for file in files if file.is_closed]
        end = files[len(closed)].base if len(closed) < len(files) else first
        if end < first:
            troubles.append(
                f"{folder}: history has taken it up to offset {first}, and its open segment begins at {end}: this is"
                " not the log that it was; keep its history in another table"
            )
        elif end > first:
            size = sum(file_size(disk, file.path) for file in _reaching(closed, end, first))
            takes.append(Take(number, folder, first, end, size))
    return takes, troubles


def _reaching(files: Sequence[LogFile], end: int, first: int) -> list[LogFile]:
    """Those of some files that have offsets from ``first`` on."""
    ends = [*(file.base for file in files[1:]), end]
    return [file for file, its_end in zip(files, ends, strict=True) if its_end > first]


# The look ------------------------------------------------------------------------------------------------------------


def _look(spark: SparkSession, takes: Sequence[Take], tell: Tell) -> list[Seen]:
    """Check every batch before anything is written: damage stops its log partition alone."""
    tell(f"checking {sum(take.size for take in takes):,} bytes of {len(takes)} log partitions")

    def look(shares: list[list[Take]], index: int) -> Iterator[pa.RecordBatch]:
        rows = [look_at(take)._asdict() for take in shares[index]]
        yield pa.RecordBatch.from_pylist(rows, schema=_SEEN_ARROW)

    schema = ", ".join(f"{name} {kind}" for name, kind in _SEEN.items())
    found = {row[0]: Seen(*row) for row in _spread(spark, takes, look, schema).collect()}
    return [found[take.log_partition] for take in takes]


def look_at(take: Take) -> Seen:
    """Where the good part of a take ends, at the end of a file, and how many records it has."""
    disk, records = Disk(), 0
    for damage in missing_files(disk, take.folder)[1]:
        if damage.offset_before < take.end and (damage.offset_after or take.end) > take.first:
            return Seen(take.log_partition, take.first, 0, f"{damage}; put back a copy of this file")
    files = [file for file in log_files(disk, take.folder).files if file.is_closed and file.base < take.end]
    for file in _reaching(files, take.end, take.first):
        count = 0
        for piece in scan_past_damage(disk, file.path, file.base):
            if isinstance(piece, Damage):
                end = max(file.base, take.first)
                return Seen(take.log_partition, end, records, f"{piece}; put back a copy of this file")
            if piece.base_offset >= take.first:
                count += piece.record_count
            elif piece.last_offset >= take.first:
                count += sum(offset >= take.first for offset, *_ in piece.records())
        records += count
    return Seen(take.log_partition, take.end, records, None)


# The rows ------------------------------------------------------------------------------------------------------------


def _move(spark: SparkSession, table: HistoryTable, good: Sequence[_Good]) -> None:
    """Write, make durable, and look whether it is there: nothing is committed that is not, once."""
    full = [one for one in good if one.records]
    if not full:
        return
    before = table.files()
    write_rows(spark, table, [one.take for one in full])
    table.make_durable(before)
    written = table.written(spark, {one.take.log_partition: one.take.first for one in full})
    for take, records in full:
        if (found := written.get(take.log_partition, (0, 0))) != (records, records):
            raise OSError(
                f"{table.path}: found {found[0]} records of {take.folder} at {found[1]} offsets, expected {records};"
                " nothing was committed, and nothing is lost: look at the disk and at Spark's log, and run it again"
            )


def write_rows(spark: SparkSession, table: HistoryTable, takes: Sequence[Take]) -> None:
    """The rows of some takes, over what lies there under their first offsets."""
    options = Options("", kinds=KINDS, is_patient=True)

    def read(shares: list[list[Take]], index: int) -> Iterator[pa.RecordBatch]:
        for take in shares[index]:
            scan = Scan(Disk(), take.folder, take.log_partition, options)
            for batch in scan.between(take.first, take.end, None, tells_gap=False):
                yield _placed(batch, take.first)

    _save(_spread(spark, takes, read, TABLE_SCHEMA), table.info.format, table.path)


def _save(frame: DataFrame, format: str, path: Path) -> None:
    writer = frame.write.format(format).mode("overwrite").option("partitionOverwriteMode", "dynamic")
    writer.partitionBy(*LAYOUT).save(str(path))


def _placed(batch: pa.RecordBatch, first: int) -> pa.RecordBatch:
    """With the day, in UTC, and the first offset of its take."""
    days = batch.column("timestamp").cast(pa.timestamp("us")).cast(pa.date32(), safe=False)
    firsts = pa.repeat(pa.scalar(first, pa.int64()), batch.num_rows)
    return pa.RecordBatch.from_arrays([*batch.columns, days, firsts], names=[*batch.schema.names, DAY, FROM_OFFSET])


def _after(disk: Disk, progress: Progress, good: Sequence[_Good], now_ms: int) -> Progress:
    taken_to = {**progress.taken_to, **{take.log_partition: take.end for take, _ in good}}
    return Progress(progress.number + 1, taken_to, _complete_since_ms(disk, progress, good), now_ms)


def _complete_since_ms(disk: Disk, progress: Progress, good: Sequence[_Good]) -> int:
    """What compaction had taken before history came is gone."""
    manifests = ((take.first, log_files(disk, take.folder).manifest) for take, _ in good)
    gaps = [manifest.created_ms for first, manifest in manifests if manifest.clean_end > first]
    return max([progress.complete_since_ms, *gaps])


def _took(one: _Good) -> dict[str, int]:
    take = one.take
    return {"log_partition": take.log_partition, "first": take.first, "end": take.end, "records": one.records}


def _spread(
    spark: SparkSession,
    takes: Sequence[Take],
    read: Callable[[list[list[Take]], int], Iterator[pa.RecordBatch]],
    schema: str,
) -> DataFrame:
    """What ``read`` gives for each share of the takes, a task a share; shares are of about the same size."""
    sizes = {take: take.size for take in takes}
    shares: list[list[Take]] = spread(sizes, -(-sum(sizes.values()) // TASK_BYTES))

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        freeze_once()
        for batch in batches:
            for index in batch.column(0).to_pylist():
                yield from read(shares, index)

    indexes: Any = spark.range(0, len(shares), numPartitions=len(shares))
    frame: DataFrame = indexes.mapInArrow(run, schema)
    return frame
