"""Columns over the batches of a buffer: a number for each record or batch, in a list or a numpy array of int64."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache, cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple

Column = Any
"""One number for each record or batch: a list of int, or numpy's array of int64."""


class BatchHeaders(NamedTuple):
    """The header fields of the batches, a column each; ``at`` and ``end`` are positions in the buffer."""

    at: Column
    end: Column
    base_offset: Column
    last_offset: Column
    attributes: Column  # bits as in ``format.batch``
    base_timestamp_ms: Column
    max_timestamp_ms: Column
    producer_id: Column
    producer_epoch: Column
    record_count: Column


class LazyColumns(NamedTuple):
    """The columns that are computed on first use."""

    offset: Column
    timestamp_ms: Column
    value_at: Column
    value_size: Column


class RecordSpans:
    """The columns of all records of a buffer, in its order.

    ``start`` and ``end``: the bounds of a record, its length field included. ``key_at`` and ``value_at``: the positions
    of key and value; ``key_size`` and ``value_size``: their sizes in bytes, -1 for null. ``batch``: the index of the
    record's batch in ``headers``.
    """

    def __init__(
        self,
        headers: BatchHeaders,
        start: Column,
        end: Column,
        key_at: Column,
        key_size: Column,
        batch: Column,
        lazy: Callable[[], LazyColumns],
    ) -> None:
        self.headers = headers
        self.start = start
        self.end = end
        self.key_at = key_at
        self.key_size = key_size
        self.batch = batch
        self._compute_lazy_columns = lazy

    def __len__(self) -> int:
        return len(self.start)

    @cached_property
    def key_end(self) -> Column:
        """The positions of the values' length fields."""
        if isinstance(self.key_at, list):
            return [at + size if size > 0 else at for at, size in zip(self.key_at, self.key_size, strict=True)]
        return self.key_at + self.key_size.clip(0)

    @property
    def offset(self) -> Column:
        return self.lazy.offset

    @property
    def timestamp_ms(self) -> Column:
        """As in ``Batch.records``: the record's, or the batch's if that is set to log append time."""
        return self.lazy.timestamp_ms

    @property
    def value_at(self) -> Column:
        return self.lazy.value_at

    @property
    def value_size(self) -> Column:
        return self.lazy.value_size

    @cached_property
    def lazy(self) -> LazyColumns:
        return self._compute_lazy_columns()


def as_list(column: Column) -> list[int]:
    """A column for plain loops, which are slow with numpy's numbers."""
    return column if isinstance(column, list) else list(column.tolist())


@cache
def has_numpy() -> bool:
    return find_spec("numpy") is not None
