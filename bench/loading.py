"""How fast one partition is loaded: records a second with numpy and without, beside a plain read of its file.

A partition is made of so many offsets: 4,000 groups whose members commit five partitions each, all in no order and in
batches of 1 to 500 records. Each way loads it in a process of its own, whose memory at its peak is told too; the plain
read gives what nobody could be faster than. The ways take turns, because other programs take the machine's time, too.

The log repeats itself after some hundred thousand records (at other offsets), so that it is made in seconds; what a
load does does not depend on values.
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
from callboard.bench.harness import BenchError, interleaved, machine, print_table, summarise, write_json
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
gc.disable()  # as the process does that loads for a server
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


class Log(NamedTuple):
    records: int
    log_bytes: int
    batches: int


def main(argv: Sequence[str] | None = None) -> int:
    """Measure, print, write the JSON; 1 when a way did not read what was written."""
    options = _options(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="callboard-load-") as folder:
            made = fill(Path(folder), options.records, options.seed)
            found = measure(Path(folder), made, options.rounds)
    except BenchError as error:
        print(f"load: {error}", file=sys.stderr)
        return 1
    _show(made, found)
    if options.json is not None:
        write_json(options.json, {**made._asdict(), "runs": found, "machine": machine()})
    return 0


def fill(folder: Path, records: int, seed: int, segment_bytes: int = SEGMENT_BYTES) -> Log:
    """Write a partition's segments; at least so many records, at most a batch more."""
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
    return Log(offset, log_bytes, batches)


def _pool(records: int, rng: random.Random) -> Iterator[tuple[bytes, int]]:
    """Batches that begin at offset 0, which their checksum does not cover, and how many records each has."""
    frame, commits = RecordEncoder().frame, _commits(rng)
    made = 0
    while made < records:
        count = min(int(2 ** rng.uniform(0, BATCH_BITS)), records - made)
        yield encode_batch(0, TIME_MS, TIME_MS, [frame(next(commits), delta) for delta in range(count)]), count
        made += count


def _commits(rng: random.Random) -> Iterator[OffsetRecord]:
    for time_ms in count_from(TIME_MS):
        group, first = rng.randrange(GROUPS), rng.randrange(MEMBERS) * PARTITIONS_A_MEMBER
        for partition in range(first, first + PARTITIONS_A_MEMBER):
            value = OffsetValue(time_ms - TIME_MS, -1, "", time_ms)
            yield OffsetRecord(f"service-{group}", "events", partition, value)


def measure(folder: Path, made: Log, rounds: int) -> Found:
    """What each way took, in every round. BenchError when one did not read what was written."""
    ways = [way for way in WAYS if way != WITH_NUMPY or has_numpy()]
    found: Found = {way: [] for way in ways}
    for way, one in interleaved({way: ("-c", MEASURE, str(folder), way) for way in ways}, rounds, PATIENCE_S):
        if way != PLAIN_READ and one["records"] != made.records:
            raise BenchError(f"{way} found {one['records']} records, expected {made.records}")
        found[way].append(one)
    return found


def _show(made: Log, found: Found) -> None:
    plain = summarise([one["cpu_seconds"] for one in found[PLAIN_READ]]).median
    rows = [_row(way, made, runs, plain) for way, runs in found.items()]
    notes = [
        f"{made.records:,} records in {made.batches:,} batches, {made.log_bytes / 1e6:,.0f} MB, in the system's memory",
        f"{GROUPS * MEMBERS * PARTITIONS_A_MEMBER:,} keys at most; memory is what they take, a chunk and Python itself",
        "rates and ratios are of CPU time: what else runs here does not count",
        *(f"aim {way}: {aim / 1e6:.1f} million records/s on one core" for way, aim in AIMS.items()),
    ]
    if WITH_NUMPY not in found:
        notes.append("numpy is not installed: pip install 'callboard[fast]'")
    columns = ("", "seconds", "CPU s", "records/s", "times a plain read", "peak memory")
    print_table("Loading one partition, one process", columns, rows, notes)


def _row(way: str, made: Log, runs: Sequence[dict[str, Any]], plain_s: float) -> tuple[str, ...]:
    seconds, cpu_s = (summarise([one[name] for one in runs]).median for name in ("seconds", "cpu_seconds"))
    peak_bytes = max(one["peak_kib"] for one in runs) * 1024
    times = f"{cpu_s / plain_s:.1f}" if plain_s else "-"
    rate = f"{made.records / cpu_s:,.0f}"
    return way, f"{seconds:.2f}", f"{cpu_s:.2f}", rate, times, f"{peak_bytes / 1e6:,.0f} MB"


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="callboard bench load", description=PURPOSE)
    parser.add_argument("--records", type=int, default=10_000_000, help="in the partition (default 10,000,000)")
    parser.add_argument("--rounds", type=int, default=3, help="how often each way loads it; medians count (default 3)")
    parser.add_argument("--seed", type=int, default=1, help="which records (default 1)")
    parser.add_argument("--quick", action="store_true", help="200,000 records, once, to see that it works")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    options = parser.parse_args(argv)
    if options.quick:
        options.records, options.rounds = 200_000, 1
    if options.records < 1 or options.rounds < 1:
        parser.error(f"--records {options.records} --rounds {options.rounds}: expected 1 or more of each")
    return options


if __name__ == "__main__":
    raise SystemExit(main())
