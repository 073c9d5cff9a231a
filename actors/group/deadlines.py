"""The registry of the deadlines of a kind of group. Pure.

A deadline has a name, which its alarm returns: a kind, and a member id if each member has a deadline of that kind. The
registry finds the deadline of a group by its name, and has the function to call when it has passed. Members keep their
``Deadline`` objects, so a heartbeat does not use the registry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Generic, NamedTuple, TypeVar

from ..errors import UnknownDeadline
from ..steps import Steps, pieces
from .effects import Deadline, Effects

Name = tuple[str, ...]

GroupT = TypeVar("GroupT")


class _Kind(NamedTuple):
    find: Callable[..., Deadline | None]
    each: Callable[..., Iterable[Deadline]]
    handler: Callable[..., None]


class Deadlines(Generic[GroupT]):
    """The kinds of deadlines, each with its handler."""

    def __init__(self) -> None:
        self._kinds: dict[str, _Kind] = {}

    def add(self, kind: str, find: Callable[[GroupT], Deadline], handler: Callable[[GroupT, Effects], None]) -> None:
        """Add a kind of which each group has one deadline, with the name ``(kind,)``."""
        self._kinds[kind] = _Kind(find, lambda group: (find(group),), handler)

    def add_per_member(
        self,
        kind: str,
        find: Callable[[GroupT, str], Deadline | None],
        each: Callable[[GroupT], Iterable[Deadline]],
        handler: Callable[[GroupT, str, Effects], None],
    ) -> None:
        """Add a kind of which each member has one deadline, with the name ``(kind, member id)``."""
        self._kinds[kind] = _Kind(find, each, handler)

    def find(self, group: GroupT, name: Name) -> Deadline | None:
        """The deadline; None if its member has been removed meanwhile. Raises UnknownDeadline."""
        return self._kind(name).find(group, *name[1:])

    def all(self, group: GroupT) -> Iterator[Deadline]:
        """All deadlines of a group, set or not."""
        for kind in self._kinds.values():
            yield from kind.each(group)

    def fire(self, group: GroupT, name: Name, now_ms: int, effects: Effects) -> None:
        """Handle the alarm of a deadline: call its handler if it has passed. Raises UnknownDeadline."""
        deadline = self.find(group, name)
        if deadline is not None and deadline.handle_alarm(now_ms, effects):
            self._kind(name).handler(group, *name[1:], effects)

    def _kind(self, name: Name) -> _Kind:
        kind = self._kinds.get(name[0]) if name else None
        if kind is None:
            raise UnknownDeadline(f"no deadline is named {name!r}; the kinds are {', '.join(self._kinds)}")
        return kind


def cancel_in_steps(deadlines: Iterable[Deadline], effects: Effects) -> Steps[None]:
    for piece in pieces(deadlines):
        for deadline in piece:
            deadline.cancel(effects)
        yield
