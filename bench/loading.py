"""Speed of loading one partition: records per second with and without numpy, compared with reading its file.

The partition has the commits of 4,000 groups, whose members commit five partitions each, in random order and in batches
of 1 to 500 records. Each way loads it in a process of its own, whose peak memory is measured too. Reading the file is
the lower bound. The ways alternate, so that other programs affect all of them.

To be generated in seconds, the log repeats after some hundred thousand records, at other offsets; loading it does not
depend on the values.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections.abc import Iterator, Sequence
from itertools import count as count_from
from itertools import cycle
from pathlib import Path
from typing import Any, NamedTuple

from callboard.actors.records import OffsetRecord, OffsetValue
from callboard.bench import loading_steps
from callboard.bench.harness import (
    BenchError,
    add_output,
    interleaved,
    machine,
    print_table,
    run_once,
    summarise,
    write_json,
)
from callboard.runtime.log.format.batch import encode_batch
from callboard.runtime.log.format.encoder import RecordEncoder
from callboard.runtime.log.reading.columns import has_numpy
from callboard.runtime.log.reading.segment import segment_name

PURPOSE = __doc__.splitlines()[0]
PLAIN_READ, WITH_NUMPY, WITHOUT_NUMPY = WAYS = ("plain read", "with numpy", "without numpy")
AIMS = {WITH_NUMPY: 2.5e6, WITHOUT_NUMPY: 1e6}
GROUPS, MEMBERS, PARTITIONS_A_MEMBER = 4000, 5, 5
POOL_RECORDS = 300_000
BATCH_BITS = 9  # batches of 1 to 2**9 records, all sizes alike on a logarithmic scale
SEGMENT_BYTES = 104_857_600
TIME_MS = 1_700_000_000_000
PATIENCE_S = 900.0

MEASURE = """
import gc, json, resource, sys, time
from pathlib import Path
from callboard.runtime.log.reading.newest import load_partition
folder, way = Path(sys.argv[1]), sys.argv[2]
if way == "with numpy":
    import numpy
gc.disable()  # as in the process that loads the log for a server
start, cpu = time.perf_counter(), time.process_time()
records = 0
if way == "plain read":
    for path in sorted(folder.glob("*.log")):
        with path.open("rb", buffering=0) as file:
            while file.read(1 << 23):
                pass
else:
    records = load_partition(folder, fast=way == "with numpy").records
seconds, cpu_seconds = time.perf_counter() - start, time.process_time() - cpu
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(json.dumps({"seconds": seconds, "cpu_seconds": cpu_seconds, "records": records, "peak_kib": peak}))
"""


Found = dict[str, list[dict[str, Any]]]


class LogCounts(NamedTuple):
    records: int
    log_bytes: int
    batches: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON; 1 if a way did not read all records."""
    options = _options(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="callboard-load-") as folder:
            counts = fill(Path(folder), options.records, options.seed)
            figures = measure(Path(folder), counts, options.rounds)
            steps = measure_steps(Path(folder))
    except BenchError as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    _show(counts, figures)
    _show_steps(steps)
    if options.output is not None:
        result = {**counts._asdict(), "runs": figures, "steps": steps, "machine": machine()}
        write_json(options.output, result)
    return 0


def fill(folder: Path, records: int, seed: int, segment_bytes: int = SEGMENT_BYTES) -> LogCounts:
    """Write a partition's segments with at least ``records`` records, at most a batch more."""
    pool = cycle(list(_pool(min(records, POOL_RECORDS), random.Random(seed))))
    offset = log_bytes = batches = 0
    while offset < records:
        with (folder / segment_name(offset)).open("wb") as file:
            size = 0
            while offset < records and size < segment_bytes:
                batch, count = next(pool)
                size += file.write(offset.to_bytes(8, "big") + batch[8:])
                offset += count
                batches += 1
        log_bytes += size
    return LogCounts(offset, log_bytes, batches)


def _pool(records: int, rng: random.Random) -> Iterator[tuple[bytes, int]]:
    """Batches with their numbers of records. Their base offset is 0, which the checksum does not cover."""
    frame, commits = RecordEncoder().frame, _commits(rng)
    counts = 0
    while counts < records:
        count = min(int(2 ** rng.uniform(0, BATCH_BITS)), records - counts)
        yield encode_batch(0, TIME_MS, TIME_MS, [frame(next(commits), delta) for delta in range(count)]), count
        counts += count


def _commits(rng: random.Random) -> Iterator[OffsetRecord]:
    for time_ms in count_from(TIME_MS):
        group, first = rng.randrange(GROUPS), rng.randrange(MEMBERS) * PARTITIONS_A_MEMBER
        for partition in range(first, first + PARTITIONS_A_MEMBER):
            value = OffsetValue(time_ms - TIME_MS, -1, "", time_ms)
            yield OffsetRecord(f"service-{group}", "events", partition, value)


def measure(folder: Path, counts: LogCounts, rounds: int) -> Found:
    """The figures of each way in every round. Raises BenchError if one did not read all records."""
    ways = [way for way in WAYS if way != WITH_NUMPY or has_numpy()]
    figures: Found = {way: [] for way in ways}
    for way, run in interleaved({way: ("-c", MEASURE, str(folder), way) for way in ways}, rounds, PATIENCE_S):
        if way != PLAIN_READ and run["records"] != counts.records:
            raise BenchError(f"{way} found {run['records']} records, expected {counts.records}")
        figures[way].append(run)
    return figures


def measure_steps(folder: Path) -> dict[str, dict[str, float]]:
    """The seconds of CPU of each step, by way and name of the step."""
    modes = {WITH_NUMPY: "fast", WITHOUT_NUMPY: "plain"}
    return {
        way: run_once(("-m", loading_steps.__name__, str(folder), mode), way, PATIENCE_S)
        for way, mode in modes.items()
        if way != WITH_NUMPY or has_numpy()
    }


def _show_steps(steps: dict[str, dict[str, float]]) -> None:
    names = dict.fromkeys(name for seconds in steps.values() for name in seconds if name != loading_steps.OTHER)
    rows = [(name, *(_share(seconds, name) for seconds in steps.values())) for name in (*names, loading_steps.OTHER)]
    print_table(
        "Share of each step in the CPU time, one run",
        ("step", *steps),
        rows,
        ["the steps are timed once for each chunk of the log"],
    )


def _share(seconds: dict[str, float], name: str) -> str:
    return f"{seconds[name] / sum(seconds.values()):.0%}" if name in seconds else "-"


def _show(counts: LogCounts, figures: Found) -> None:
    plain = summarise([run["cpu_seconds"] for run in figures[PLAIN_READ]]).median
    rows = [_row(way, counts, runs, plain) for way, runs in figures.items()]
    notes = [
        f"{counts.records:,} records in {counts.batches:,} batches, {counts.log_bytes / 1e6:,.0f} MB (in page cache)",
        f"{GROUPS * MEMBERS * PARTITIONS_A_MEMBER:,} keys at most; memory is that of the keys, a chunk and Python",
        "rates and ratios use CPU time, which other programs do not affect",
        *(f"target {way}: {aim / 1e6:.1f} million records/s on one core" for way, aim in AIMS.items()),
    ]
    if WITH_NUMPY not in figures:
        notes.append("numpy is not installed: pip install 'callboard[fast]'")
    columns = ("", "seconds", "CPU s", "records/s", "x plain read", "peak memory")
    print_table("Loading one partition, one process", columns, rows, notes)


def _row(way: str, counts: LogCounts, runs: Sequence[dict[str, Any]], plain_s: float) -> tuple[str, ...]:
    seconds, cpu_s = (summarise([run[name] for run in runs]).median for name in ("seconds", "cpu_seconds"))
    peak_bytes = max(run["peak_kib"] for run in runs) * 1024
    times = f"{cpu_s / plain_s:.1f}" if plain_s else "-"
    rate = f"{counts.records / cpu_s:,.0f}"
    return way, f"{seconds:.2f}", f"{cpu_s:.2f}", rate, times, f"{peak_bytes / 1e6:,.0f} MB"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench load", description=PURPOSE)
    parser.add_argument(
        "--records", type=int, metavar="N", default=10_000_000, help="number of records (default 10,000,000)"
    )
    parser.add_argument(
        "--rounds", type=int, metavar="N", default=3, help="runs of each way; medians are shown (default 3)"
    )
    parser.add_argument("--seed", type=int, metavar="N", default=1, help="seed of the records (default 1)")
    parser.add_argument("--quick", action="store_true", help="200,000 records, once, as a smoke test")
    add_output(parser)
    options = parser.parse_args(argv)
    if options.quick:
        options.records, options.rounds = 200_000, 1
    if options.records < 1 or options.rounds < 1:
        parser.error(f"--records {options.records} --rounds {options.rounds}: expected 1 or more of each")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
