"""The faults that a test injects: error responses, delays, lost responses, closed connections, a failed disk.

A fault selects requests by Kafka's API name and optionally by group, client, member and count. It is implemented once
for requests from a socket and for requests in this process (``Exchange``).
"""

from __future__ import annotations

import errno
import math
import threading
from collections.abc import Callable
from copy import copy
from typing import Any, Generic, NoReturn, Protocol, TypedDict, TypeVar, Unpack

from ....actors.text import did_you_mean
from ...embed.lifecycle import EndMode
from ...kafka.error_response import error_code_by_name
from ..disk.faulty import Fault as DiskFault
from ..disk.faulty import FaultyDisk
from .facts import RequestFacts, api_names

WAIT_S = 10.0
ANY = "*"
"""Any API. With a client id it simulates a client that the network has disconnected."""

R = TypeVar("R")
Q = TypeVar("Q")


class Exchange(Protocol):
    """A request in progress, and what a fault can do with it. Each method is called at most once."""

    def proceed(self) -> None:
        """Handle the request."""

    def send_answer(self) -> None:
        """Send its answer."""

    def refuse(self, code: Any) -> None:
        """Answer with this error, a code of kio."""

    def disconnect(self) -> None:
        """Close the connection without an answer."""

    def later(self, delay_ms: int, step: Callable[[], None]) -> None:
        """Call ``step`` after ``delay_ms`` on the coordinator's clock."""


class Fault:
    """A requested fault. ``hits``: how often it was applied."""

    def __init__(self, description: str) -> None:
        self.description = description
        self.hits = 0
        self._was_hit = threading.Event()

    def __repr__(self) -> str:
        return f"<{self.description}, {self.hits} {'hit' if self.hits == 1 else 'hits'}>"

    def wait(self, timeout: float = WAIT_S) -> None:
        """Block until the first hit; TimeoutError after ``timeout`` s. In a coroutine use ``asyncio.to_thread``."""
        if not self._was_hit.wait(timeout):
            raise TimeoutError(f"{self.description}: no hit within {timeout:g} s")

    def record_hit(self) -> None:
        self.hits += 1
        self._was_hit.set()


class RequestFault(Fault):
    """A fault of matching requests. ``after``: the request is handled, and the fault applies to its answer."""

    def __init__(self, description: str, match: RequestFilter, after: bool) -> None:
        super().__init__(description)
        self.after = after
        self._match = match

    def matches(self, facts: RequestFacts) -> bool:
        return self._match.matches(facts)

    def apply(self, exchange: Exchange) -> None:
        """Apply the fault instead of handling the request or, if ``after``, instead of sending the answer."""
        raise NotImplementedError


class Fail(RequestFault):
    def __init__(self, description: str, match: RequestFilter, after: bool, code: Any) -> None:
        super().__init__(description, match, after)
        self.code = code

    def apply(self, exchange: Exchange) -> None:
        exchange.refuse(self.code)


class Delay(RequestFault):
    def __init__(self, description: str, match: RequestFilter, after: bool, delay_ms: int) -> None:
        super().__init__(description, match, after)
        self.delay_ms = delay_ms

    def apply(self, exchange: Exchange) -> None:
        exchange.later(self.delay_ms, exchange.send_answer if self.after else exchange.proceed)


class Drop(RequestFault):
    def apply(self, exchange: Exchange) -> None:
        """Never answer."""


class Disconnect(RequestFault):
    def apply(self, exchange: Exchange) -> None:
        exchange.disconnect()


class FaultFilter(TypedDict, total=False):
    """The arguments that select requests, see ``Faults``."""

    group: str | None
    client_id: str | None
    member: str | None
    nth: int
    times: float


DELAY_MAX_S = 100 * 365 * 24 * 3600
"""As far as the clock can be moved at once."""


class RequestFilter:
    """Selects requests: the ``nth`` that matches, and the next ``times - 1``."""

    def __init__(
        self,
        api: str,
        group: str | None = None,
        client_id: str | None = None,
        member: str | None = None,
        nth: int = 1,
        times: float = 1,
    ) -> None:
        if not (isinstance(nth, int) and nth >= 1 and times >= 1):  # also refuses nan
            raise ValueError(f"nth={nth}, times={times}: expected 1 or more; times=math.inf for all that come")
        self.api = known_api(api)
        self._wanted = {"group": group, "client_id": client_id, "member": member}
        for name, value in self._wanted.items():
            if value is not None and not isinstance(value, str):
                raise ValueError(f"{name}={value!r}: expected text, or None for any")  # it would never match
        self._nth = nth
        self._skip = nth - 1
        self._times = times

    def __str__(self) -> str:
        conditions = [f"{name}={value!r}" for name, value in self._wanted.items() if value is not None]
        if self._nth > 1:
            conditions.append(f"nth={self._nth}")
        return ", ".join((self.api, *conditions))

    def matches(self, facts: RequestFacts) -> bool:
        """Whether the fault applies to this request. Counts it."""
        if self._times <= 0 or not self._fits(facts):
            return False
        if self._skip:
            self._skip -= 1
            return False
        self._times -= 1
        return True

    def _fits(self, facts: RequestFacts) -> bool:
        values = {"group": facts.groups, "client_id": (facts.client_id,), "member": facts.members + facts.instances}
        return self.api in (ANY, facts.api) and all(
            value is None or value in values[name] for name, value in self._wanted.items()
        )


def known_api(name: str) -> str:
    """Return the name. ValueError, with the list of names, if it is not a served API."""
    if name == ANY or name in api_names():
        return name
    known = sorted(api_names())
    raise ValueError(f"there is no API {name!r}:{did_you_mean(name, known)} Kafka's names are {', '.join(known)}")


class Faults(Generic[R]):
    """The faults of one coordinator. Any thread may request them. A fault applies once unless ``times`` is given.

    ``api`` is Kafka's name ("SyncGroup"), or "*" for any; ``group``, ``client_id`` and ``member`` (a member or
    instance id) filter the requests; the first ``nth - 1`` matches are skipped. ValueError for unknown names.
    With ``after=True`` the request is handled, and the fault applies to its answer.
    """

    def __init__(self, note: Callable[[str, str, tuple[str, ...]], None]) -> None:
        """``note`` adds to the timeline: the description, the client id and the groups."""
        self._note = note
        self._planned: list[RequestFault] = []
        self._all: list[Fault] = []
        self._disks: list[FaultyDisk] = []  # of the running node; shared by all views, like the other lists
        self.restart_node: Callable[[EndMode], R] = _no_node

    def fail(self, api: str, *, error: str, after: bool = False, **which: Unpack[FaultFilter]) -> Fault:
        """Answer with this error of Kafka, by name ("REBALANCE_IN_PROGRESS")."""
        if api == ANY:
            raise ValueError("fail('*'): expected one API: not every answer has a field for an error")
        match, code = RequestFilter(api, **which), error_code_by_name(error)
        fault = Fail(_describe(f"fail {match} with {error}", after), match, after, code)
        return self._plan(fault)

    def delay(self, api: str, *, seconds: float, after: bool = False, **which: Unpack[FaultFilter]) -> Fault:
        """Delay the request by the coordinator's clock, and all later requests on its connection."""
        if not (isinstance(seconds, int | float) and 0 <= seconds <= DELAY_MAX_S):
            raise ValueError(f"seconds={seconds!r}: expected 0 or more; use `drop` for no answer at all")
        match = RequestFilter(api, **which)
        fault = Delay(_describe(f"delay {match} by {seconds:g} s", after), match, after, round(seconds * 1000))
        return self._plan(fault)

    def drop(self, api: str, *, after: bool = False, **which: Unpack[FaultFilter]) -> Fault:
        """Never answer this request or later ones on its connection, as when packets are lost."""
        match = RequestFilter(api, **which)
        return self._plan(Drop(_describe(f"drop {match}", after), match, after))

    def disconnect(self, api: str, *, after: bool = False, **which: Unpack[FaultFilter]) -> Fault:
        """Close the connection instead of answering."""
        match = RequestFilter(api, **which)
        return self._plan(Disconnect(_describe(f"disconnect {match}", after), match, after))

    def lose_disk_after(self, writes: int) -> Fault:
        """After so many more writes every write fails (EIO), until a restart.

        ``clear`` repairs the disk too, but a log that has failed by then needs a restart, as a server's does.
        ValueError when the coordinator's data is not in memory.
        """
        if not (isinstance(writes, int) and writes >= 0):
            raise ValueError(f"writes={writes!r}: expected a whole number, 0 or more")
        if not self._disks:
            raise ValueError("the coordinator's data is in a real folder: expected one in memory (data=None)")
        fault = Fault(f"lose the disk after {writes} writes")
        self._all.append(fault)
        [disk] = self._disks
        disk.faults.on_fault = lambda operation, path: self._record_hit(
            fault, f"{fault.description}: {operation} {path}"
        )
        disk.faults.fail(DiskFault("write", errno.EIO, skip=writes, times=math.inf))
        return fault

    def restart(self, *, crash: bool = False, power_loss: bool = False) -> R:
        """Stop the coordinator and start another one with its data, on the same port. Awaitable on a loop.

        By default it stops cleanly, as ``serve`` does. ``crash``: as by ``kill -9``, open requests get no answer.
        ``power_loss``: unsynced data may be lost too; ValueError when the data is not in memory. All connections are
        closed. Members that reconnect within their session stay in their group.
        """
        return self.restart_node("power lost" if power_loss else "killed" if crash else "stopped")

    def clear(self) -> None:
        """Remove all faults. Delayed requests still continue when their delay ends."""
        self._planned.clear()
        self.clear_disk_faults()

    def all(self) -> tuple[Fault, ...]:
        """All faults that were requested, in order."""
        return tuple(self._all)

    # For the coordinator ---------------------------------------------------------------------------------------------

    def with_restart(self, restart: Callable[[EndMode], Q]) -> Faults[Q]:
        """The same faults with another function for restarts."""
        own: Any = self
        view: Faults[Q] = copy(own)
        view.restart_node = restart
        return view

    def set_disk(self, disk: object) -> None:
        """Set the disk of the running node."""
        self._disks[:] = [disk] if isinstance(disk, FaultyDisk) else []

    def clear_disk_faults(self) -> None:
        for disk in self._disks:
            disk.faults.clear()

    def find(self, facts: RequestFacts) -> RequestFault | None:
        """The first matching fault of a request, or None. Later faults do not count the request."""
        return next((fault for fault in tuple(self._planned) if fault.matches(facts)), None)

    def apply(self, fault: RequestFault, facts: RequestFacts, exchange: Exchange) -> None:
        self._record_hit(fault, fault.description, facts.client_id, facts.groups)
        fault.apply(exchange)

    def note(self, description: str) -> None:
        """Note a fault that the coordinator applies itself, such as a restart."""
        fault = Fault(description)
        self._all.append(fault)
        self._record_hit(fault, description)

    def _plan(self, fault: RequestFault) -> Fault:
        self._all.append(fault)
        self._planned.append(fault)
        return fault

    def _record_hit(self, fault: Fault, description: str, client: str = "", groups: tuple[str, ...] = ()) -> None:
        fault.record_hit()
        self._note(description, client, groups)


def _describe(description: str, after: bool) -> str:
    return f"{description}, after it was handled" if after else description


def _no_node(_mode: EndMode) -> NoReturn:
    raise RuntimeError("no node is attached yet")
