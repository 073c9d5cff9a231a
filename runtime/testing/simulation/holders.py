"""Checks the owners of resources: never two at the same virtual time, and never one with an old token.

A test reports when a member begins and ends work on a resource. Two members may work on a resource together only if the
process of one was frozen meanwhile: it cannot detect the loss of its lease in time, and then the token protects the
resource. ``write`` models a store that checks tokens and refuses old ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .loop import Process

Resource = tuple[str, str, int | str]
"""Group, resource and shard."""


class Hold:
    """A member works on a resource. ``was_frozen``: its process was frozen since it began."""

    def __init__(self, who: str, token: int, process: Process) -> None:
        self.who = who
        self.token = token
        self.process = process
        self.was_frozen = False


class HolderChecker:
    """``fail`` is called with a text for each violation; ``tell`` with a line for the timeline."""

    def __init__(self, fail: Callable[[str], None], tell: Callable[[str], None]) -> None:
        self._fail = fail
        self._tell = tell
        self._holds: dict[Resource, list[Hold]] = defaultdict(list)
        self._newest: dict[Resource, tuple[int, str]] = {}
        self._were_frozen: set[Process] = set()
        self.works = 0

    @contextmanager
    def works_on(self, resource: Resource, who: str, token: int, process: Process) -> Iterator[Hold]:
        """The block works on a resource."""
        hold = self.begin(resource, who, token, process)
        try:
            yield hold
        finally:
            self.end(resource, hold)

    def begin(self, resource: Resource, who: str, token: int, process: Process) -> Hold:
        name = "/".join(map(str, resource))
        self._tell(f"{who} works on {name} with token {token}")
        self.works += 1
        hold = Hold(who, token, process)
        newest, owner = self._newest.get(resource, (-1, who))
        if (token < newest or (token == newest and owner != who)) and process not in self._were_frozen:
            self._fail(f"{who} works on {name} with token {token}, but {owner} had {newest} before")
        for other in self._holds[resource]:
            if not (other.was_frozen or other.process.is_frozen):
                self._fail(f"{who} and {other.who} work on {name} at the same time (tokens {token} and {other.token})")
        self._newest[resource] = token, who
        self._holds[resource].append(hold)
        return hold

    def end(self, resource: Resource, hold: Hold) -> None:
        if hold in self._holds[resource]:
            self._tell(f"{hold.who} ends its work on {'/'.join(map(str, resource))}")
            self._holds[resource].remove(hold)

    def write(self, resource: Resource, token: int) -> bool:
        """Whether a store that checks tokens would accept a write."""
        newest, _ = self._newest.get(resource, (-1, ""))
        return token >= newest

    def freeze(self, process: Process) -> None:
        """The process is frozen: it may overlap with later owners."""
        self._were_frozen.add(process)
        for holds in self._holds.values():
            for hold in holds:
                hold.was_frozen = hold.was_frozen or hold.process is process

    def thawed(self, process: Process, freezes: int) -> None:
        """Check, some time after the n-th freeze of a process has ended, that it has stopped the work it lost."""
        if process.freezes != freezes:
            return
        for resource, holds in self._holds.items():
            for hold in holds:
                if hold.process is process and hold.token < self._newest[resource][0] and not process.is_frozen:
                    name = "/".join(map(str, resource))
                    self._fail(f"{hold.who} still works on {name} with token {hold.token}, long after it was frozen")

    def killed(self, process: Process) -> None:
        """The process was killed, and its work has ended."""
        for holds in self._holds.values():
            holds[:] = [hold for hold in holds if hold.process is not process]

    def held(self, group_id: str) -> dict[tuple[str, int | str], list[str]]:
        """The current owners by resource and shard."""
        return {
            resource[1:]: [hold.who for hold in holds]
            for resource, holds in self._holds.items()
            if resource[0] == group_id and holds
        }
