"""The options of the data source, and their validation.

They are safer than filter pushdown (pushdown.py): Spark keeps one reader for all queries of a DataFrame, so the filter
of one query also applies to the next. Options belong to the DataFrame.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, NamedTuple

from ..runtime.cluster.engines import engine_of, without_password
from ..runtime.common.errors import StartError
from .columns import ALL_COLUMNS, ROW_KINDS

RECORDS, LIVE = "records", "live"
FAILFAST, PERMISSIVE = "failfast", "permissive"
EARLIEST, LATEST = "earliest", "latest"
SHARED, DRIVER = "shared", "driver"
SPARK, PUSHED = "spark", "pushed"
_NUMBER = re.compile(r"[0-9]{1,18}")  # int() also takes digits of other scripts, and raises from 4300 digits on
PARTITION_MAX = 1_000_000  # no topic has so many partitions; a larger number is a typing error


class Options(NamedTuple):
    """The records to read. None means no restriction.

    ``live``: only the newest record of each key, without deleted ones. ``since_ms``: only records from that time on, in
    ms since 1970. ``is_permissive``: damage becomes a row of kind ``damage`` instead of an error. ``rows_per_trigger``:
    log offsets for each batch of a stream, over all partitions. ``sends_files``: the driver reads the files and sends
    them to the tasks. ``cluster``: the URL of the store of a cluster, which is read instead of a path; ``path`` then
    shows it in messages. ``filters``: PUSHED if the filters of the query decide what is read. ``first_offset``,
    ``end_offset``: only log offsets from the one up to the other; not with ``live``.
    """

    path: str
    live: bool = False
    partitions: frozenset[int] | None = None
    groups: frozenset[str] | None = None
    since_ms: int | None = None
    kinds: frozenset[str] = frozenset(ROW_KINDS)
    columns: tuple[str, ...] = tuple(ALL_COLUMNS)
    is_permissive: bool = False
    from_latest: bool = False
    rows_per_trigger: int | None = None
    sends_files: bool = False
    cluster: str = ""
    filters: str = SPARK
    first_offset: int = 0
    end_offset: int | None = None

    @property
    def shown_path(self) -> str:
        """The path as messages show it: a URL without its password."""
        return without_password(self.path)


def parse_options(options: Mapping[str, str]) -> Options:
    """Raises ValueError with the option, the value found and the value expected. Option names ignore case."""
    lower = {name.lower(): text for name, text in options.items()}
    unknown = sorted(lower.keys() - _PARSERS.keys() - {"path"})
    if unknown:
        raise ValueError(f"unknown option '{unknown[0]}'; expected some of {', '.join(_PARSERS)}")
    fields = dict(_PARSERS[name](text) for name, text in lower.items() if name != "path")
    return Options(_path(lower), **fields)


def _path(lower: Mapping[str, str]) -> str:
    path, cluster = lower.get("path", ""), lower.get("cluster", "")
    if not cluster:
        if not path:
            raise ValueError(
                "no path was given; expected .load(DIR) with a data folder, or with one of Kafka's log folders, or the"
                " option cluster with the URL of a cluster's store"
            )
        return path
    if path:
        raise ValueError(f"found the path {path} and the option cluster; a cluster's log is in its store: use .load()")
    if lower.get("files", SHARED).lower() != SHARED:
        raise ValueError("files=driver is for folders: with the option cluster every worker opens the store")
    return without_password(cluster)


def _choice(field: str, name: str, no: str, yes: str) -> Callable[[str], tuple[str, Any]]:
    def parse_choice(text: str) -> tuple[str, Any]:
        if text.lower() not in (no, yes):
            raise ValueError(f"bad {name} '{text}': expected {no} or {yes}")
        return field, text.lower() == yes

    return parse_choice


def _partitions(text: str) -> tuple[str, Any]:
    partitions: set[int] = set()
    for part in text.split(","):
        first, dash, last = part.strip().partition("-")
        numbers = [first, last] if dash else [first, first]
        if not all(_NUMBER.fullmatch(number) and int(number) < PARTITION_MAX for number in numbers):
            raise ValueError(f"bad partitions '{part.strip()}': expected numbers and ranges, as in 0,3-5")
        if int(numbers[0]) > int(numbers[1]):
            raise ValueError(f"bad partitions '{part.strip()}': expected A-B with A up to B, as in 3-5")
        partitions.update(range(int(numbers[0]), int(numbers[1]) + 1))
    return "partitions", frozenset(partitions)


def _groups(text: str) -> tuple[str, Any]:
    """Names that contain a comma need the JSON form."""
    if not text.lstrip().startswith("["):
        return "groups", frozenset(text.split(","))
    try:
        names = json.loads(text)
    except ValueError as error:
        raise ValueError(f"bad groups '{text}': {error}; expected a JSON list, or names separated by commas") from None
    if not all(isinstance(name, str) for name in names):
        raise ValueError(f"bad groups '{text}': expected strings in the list")
    return "groups", frozenset(names)


def _since(text: str) -> tuple[str, Any]:
    if _NUMBER.fullmatch(text.strip()):
        return "since_ms", int(text)
    try:
        time = datetime.fromisoformat(text.strip())
    except ValueError:
        raise ValueError(f"bad since '{text}': expected 2026-11-21T08:00:00Z, or ms since 1970") from None
    return "since_ms", round((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)


def _subset(field: str, name: str, allowed: tuple[str, ...]) -> Callable[[str], tuple[str, Any]]:
    def parse_subset(text: str) -> tuple[str, Any]:
        values = [part.strip() for part in text.split(",")]
        for value in values:
            if value not in allowed:
                raise ValueError(f"bad {name} '{value}': expected some of {', '.join(allowed)}")
        return field, tuple(dict.fromkeys(values)) if field == "columns" else frozenset(values)

    return parse_subset


def _rows(text: str) -> tuple[str, Any]:
    if not _NUMBER.fullmatch(text) or int(text) < 1:
        raise ValueError(f"bad rowsPerTrigger '{text[:40]}': expected a number of at least 1, with at most 18 digits")
    return "rows_per_trigger", int(text)


def _filters(text: str) -> tuple[str, Any]:
    if text.lower() not in (SPARK, PUSHED):
        raise ValueError(f"bad filters '{text}': expected {SPARK} or {PUSHED}")
    return "filters", text.lower()


def _cluster(text: str) -> tuple[str, Any]:
    try:
        engine_of(text)
    except StartError as error:
        raise ValueError(str(error)) from None
    return "cluster", text


_PARSERS: dict[str, Callable[[str], tuple[str, Any]]] = {
    "mode": _choice("live", "mode", RECORDS, LIVE),
    "partitions": _partitions,
    "groups": _groups,
    "since": _since,
    "kind": _subset("kinds", "kind", ROW_KINDS),
    "columns": _subset("columns", "columns", tuple(ALL_COLUMNS)),
    "damage": _choice("is_permissive", "damage", FAILFAST, PERMISSIVE),
    "startingoffsets": _choice("from_latest", "startingOffsets", EARLIEST, LATEST),
    "rowspertrigger": _rows,
    "cluster": _cluster,
    "files": _choice("sends_files", "files", SHARED, DRIVER),
    "filters": _filters,
}
