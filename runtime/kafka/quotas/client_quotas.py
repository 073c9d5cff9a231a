"""ClientQuotas: the quotas in effect, and how much of them is used. Byte rates are stored but not enforced."""

from __future__ import annotations

from collections import Counter as CountsByName
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping
from typing import Any, Final, Generic, TypeVar

from ....actors.engine_ports import Clock
from ....actors.errors import CoordinatorError, ErrorCode
from ....actors.steps import Steps
from ...security.quota_windows import SlidingRate, TokenBucket
from ...security.quotas import CONNECTION_RATE, MUTATION_RATE, REQUEST_PERCENTAGE, QuotaTable, plain_ip, tables_of

COUNTERS_MAX: Final = 10_000
"""Clients whose use of one quota is remembered. The one that was idle for longest is forgotten first."""

PERCENT_PER_NS: Final = 100 / 1e9
"""Of one second of the event loop."""

COMMIT_RATE: Final = "offset_commit_rate_per_group"
QUOTAS_ENFORCED: Final = (REQUEST_PERCENTAGE, MUTATION_RATE, CONNECTION_RATE, COMMIT_RATE)

Counter = TypeVar("Counter")


class Counters(Generic[Counter]):
    """How much each client has used of one quota. By their hashes: a client id may have 32,767 bytes."""

    def __init__(self, new: Callable[[], Counter]) -> None:
        self._new = new
        self._counters: OrderedDict[int, Counter] = OrderedDict()

    def of(self, client: Hashable) -> Counter:
        key = hash(client)
        counter = self._counters.get(key)
        if counter is None:
            counter = self._counters[key] = self._new()
            if len(self._counters) > COUNTERS_MAX:
                self._counters.popitem(last=False)
        self._counters.move_to_end(key)
        return counter


class ClientQuotas:
    """Counts what clients use, and tells how long they have to wait.

    ``has_request_quotas``: whether the time of requests has to be measured. ``on_change`` are called after a change.
    ``throttled``: how often clients had to wait, by quota.
    """

    def __init__(self, clock: Clock, commit_rate: float = 0.0) -> None:
        """``commit_rate``: the setting ``offset_commit_rate_per_group``."""
        self.commit_rate = commit_rate
        self.throttled = CountsByName(dict.fromkeys(QUOTAS_ENFORCED, 0))
        self.on_change: list[Callable[[], None]] = []
        self._clock = clock
        self._requests = QuotaTable()
        self._mutations = QuotaTable()
        self._connections = QuotaTable()
        self._times = Counters(SlidingRate)
        self._buckets = Counters(TokenBucket)
        self._connects = Counters(SlidingRate)
        self._commits = Counters(SlidingRate)

    def use(self, section: Mapping[str, Any]) -> Steps[None]:
        """Have these stored quotas from now on. All of them take effect in the same step."""
        tables = yield from tables_of(section, (REQUEST_PERCENTAGE, MUTATION_RATE, CONNECTION_RATE))
        self._requests, self._mutations, self._connections = tables
        for callback in self.on_change:
            callback()

    @property
    def has_request_quotas(self) -> bool:
        return bool(self._requests)

    def add_time(self, user: str, client_id: str, spent_ns: int) -> None:
        """The requests of a client have taken so much time of the event loop."""
        limit = self._requests.of_client(user, client_id)
        if limit is not None:
            self._times.of(limit.shared_by).add(spent_ns * PERCENT_PER_NS, self._clock.monotonic_ms())

    def request_throttle_ms(self, user: str, client_id: str) -> int:
        """How long a client has to wait because of the time that its requests have taken."""
        limit = self._requests.of_client(user, client_id)
        if limit is None:
            return 0
        throttle_ms = self._times.of(limit.shared_by).throttle_ms(limit.value, self._clock.monotonic_ms())
        self.throttled[REQUEST_PERCENTAGE] += throttle_ms > 0
        return throttle_ms

    def commit_throttle_ms(self, group_id: str) -> int:
        """Count an OffsetCommit. Returns how long its client has to wait, because its group commits too often."""
        rate, now_ms = self._commits.of(group_id), self._clock.monotonic_ms()
        rate.add(1, now_ms)
        throttle_ms = rate.throttle_ms(self.commit_rate, now_ms)
        self.throttled[COMMIT_RATE] += throttle_ms > 0
        return throttle_ms

    def connection_throttle_ms(self, address: str) -> int:
        """Count a new connection. Returns for how long it is throttled; 0 if its address is within its quota."""
        if not self._connections:
            return 0
        address = plain_ip(address) or address
        limit = self._connections.of_ip(address)
        if limit is None:
            return 0
        rate, now_ms = self._connects.of(address), self._clock.monotonic_ms()
        rate.add(1, now_ms)
        throttle_ms = rate.throttle_ms(limit.value, now_ms)
        if throttle_ms:
            rate.add(-1, now_ms)  # it does not count
            self.throttled[CONNECTION_RATE] += 1
        return throttle_ms

    def mutations(self, user: str, client_id: str, *, is_strict: bool) -> MutationQuota | None:
        """The quota for partitions that a request creates or deletes; None if there is no limit."""
        limit = self._mutations.of_client(user, client_id)
        if limit is None:
            return None
        return MutationQuota(self._buckets.of(limit.shared_by), limit.value, self._clock, is_strict=is_strict)


class MutationQuota:
    """The quota of one request (KIP-599)."""

    def __init__(self, bucket: TokenBucket, rate: float, clock: Clock, *, is_strict: bool) -> None:
        """``is_strict``: what is above the quota is refused; else it is done, and the client has to wait."""
        self._bucket = bucket
        self._rate = rate
        self._clock = clock
        self._is_strict = is_strict

    def charge(self, partitions: int) -> None:
        """Count partitions that are created or deleted. Raises CoordinatorError if the quota is used up."""
        now_ms = self._clock.monotonic_ms()
        if self._is_strict and self._bucket.throttle_ms(self._rate, now_ms):
            raise CoordinatorError(ErrorCode.THROTTLING_QUOTA_EXCEEDED, "")
        self._bucket.take(partitions, self._rate, now_ms)

    def throttle_ms(self) -> int:
        """How long the client has to wait now."""
        return self._bucket.throttle_ms(self._rate, self._clock.monotonic_ms())
