"""Who works on what, over virtual time: never two at once, and never with an old token.

A test says when somebody begins and ends to work on a resource. Two members may be wrong about a resource together only
if the process of one was frozen meanwhile: nobody can see that from within, and the token is what keeps the resource
safe then. So ``write`` stands for a store that looks at tokens, as one should: it refuses the old ones.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from .loop import Process

Resource = tuple[str, str, int | str]
"""Group, resource, and which part of it."""


class Hold:
    """Somebody works on a resource. ``was_frozen``: its process stood still since it began."""

    def __init__(self, who: str, token: int, process: Process) -> None:
        self.who = who
        self.token = token
        self.process = process
        self.was_frozen = False


class HolderChecker:
    """``fail`` is called with a sentence; ``tell`` with a line for the timeline."""

    def __init__(self, fail: Callable[[str], None], tell: Callable[[str], None]) -> None:
        self._fail = fail
        self._tell = tell
        self._holds: dict[Resource, list[Hold]] = defaultdict(list)
        self._newest: dict[Resource, tuple[int, str]] = {}
        self._were_frozen: set[Process] = set()
        self.works = 0

    @contextmanager
    def works_on(self, resource: Resource, who: str, token: int, process: Process) -> Iterator[Hold]:
        """The block is work on a resource."""
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
        """Whether a store that looks at tokens would take a write."""
        newest, _ = self._newest.get(resource, (-1, ""))
        return token >= newest

    def freeze(self, process: Process) -> None:
        """From now on it cannot know what it still holds."""
        self._were_frozen.add(process)
        for holds in self._holds.values():
            for hold in holds:
                hold.was_frozen = hold.was_frozen or hold.process is process

    def thawed(self, process: Process) -> None:
        """Some time after a process has gone on: by now it must have seen what it has lost."""
        for resource, holds in self._holds.items():
            for hold in holds:
                if hold.process is process and hold.token < self._newest[resource][0] and not process.is_frozen:
                    name = "/".join(map(str, resource))
                    self._fail(f"{hold.who} still works on {name} with token {hold.token}, long after it was frozen")

    def killed(self, process: Process) -> None:
        """It works no more."""
        for holds in self._holds.values():
            holds[:] = [hold for hold in holds if hold.process is not process]

    def held(self, group_id: str) -> dict[tuple[str, int | str], list[str]]:
        """Who works on what now."""
        return {
            resource[1:]: [hold.who for hold in holds]
            for resource, holds in self._holds.items()
            if resource[0] == group_id and holds
        }
