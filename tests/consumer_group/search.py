"""An exhaustive search of the rules of consumer groups: all that can happen to three members of three partitions.

    python -m consumer_group.search [--clients a,b,S] [--subscriptions KIND] [--case N] [--states N] [--settle N]

From each state that can be reached, each step is taken: joins, heartbeats that name what the client owns or nothing,
full requests, new subscriptions, leaves, crashes, clients that have revoked what they were told to, answers that are
lost, sessions and deadlines that end, an administrator that removes all members, and assignments that have to wait for
their interval. Clients with a capital letter are static members. They also leave for a while, and their next process
has another member id. Subscriptions may be regular expressions, whose results come later, or not at all.

States that differ in the values of epochs, but not in their order, are one state. Checked in each: no partition has two
owners; a client in the group owns nothing that the group may give to another; epochs are in order; the targets cover
each partition once. And in every n-th: all ends well if from now on nothing is lost.
"""

from __future__ import annotations

import argparse
import marshal
import time
from array import array
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import NamedTuple

from consumer_group.search_world import (
    BOTH,
    PARTITIONS,
    SUBSCRIPTIONS,
    Client,
    SearchWorld,
    Snapshot,
    Violation,
    bits,
)

from callboard.actors.consumer_group.messages import (
    JOIN_EPOCH,
    LEAVE_EPOCH,
    LEAVE_STATIC_EPOCH,
    ConsumerHeartbeat,
)
from callboard.actors.consumer_group.records import Partition
from callboard.actors.consumer_group.state import GroupPhase
from callboard.actors.errors import NO_ERROR, ErrorCode

Step = Callable[[SearchWorld], None]

SETTLE_ROUNDS = 12


class Found(NamedTuple):
    """``is_closed``: whether these are all states. ``steps``: taken, from all states together."""

    states: int
    steps: int
    settled: int
    is_closed: bool


# Steps ---------------------------------------------------------------------------------------------------------------


def steps(world: SearchWorld) -> Iterator[tuple[str, Step]]:
    """All steps from a state, each with a text."""
    for name, client in world.clients.items():
        texts = _client_steps(name, client)
        yield from ((f"{name} {text}", step) for text, step in texts)
    for member_id in world.state.members:
        yield f"session of {member_id} ends", partial(_expire_session, member_id)
    for member_id in world.deadlines:
        yield f"deadline of {member_id} ends", partial(_expire_rebalance, member_id)
    if len(world.state.members) > 1:
        yield "all members are removed", SearchWorld.remove_all
    if world.resolving:
        yield "the regular expressions are resolved", SearchWorld.resolve
        yield "the regular expressions cannot be resolved", _fail_to_resolve


def _client_steps(name: str, client: Client) -> Iterator[tuple[str, Step]]:
    if client.epoch == 0:
        yield from _both("joins with the first subscription", name, _join, 0)
        yield from _both("joins with the second subscription", name, _join, 1)
        return
    if client.owned != client.told:
        yield "has revoked and acquired", partial(_acquire, name)
    yield "crashes", partial(_crash, name)
    yield "leaves", partial(_leave, name, LEAVE_EPOCH)
    if name.isupper():
        yield "leaves for a while", partial(_leave, name, LEAVE_STATIC_EPOCH)
    if client.missed:
        yield from _both("sends a full request", name, _full, client.subscription)
    else:
        yield from _both("names what it owns", name, _beat, True)
        yield from _both("names nothing", name, _beat, False)
        yield from _both("subscribes anew", name, _full, 1 - client.subscription)


def _both(text: str, name: str, send: Callable[..., None], *arguments: object) -> Iterator[tuple[str, Step]]:
    """The same with an answer that arrives and one that is lost."""
    yield text, partial(send, name, *arguments, True)
    yield f"{text}, answer lost", partial(send, name, *arguments, False)


def _join(name: str, subscription: int, arrives: bool, world: SearchWorld) -> None:
    world.update(name, subscription=subscription)
    world.send(name, JOIN_EPOCH, arrives, world.subscriptions[subscription], owned=(), is_full=True)


def _beat(name: str, tells: bool, arrives: bool, world: SearchWorld) -> None:
    client = world.clients[name]
    owned = world.partitions(client.owned) if tells else None
    world.send(name, client.epoch, arrives, owned=owned)


def _full(name: str, subscription: int, arrives: bool, world: SearchWorld) -> None:
    world.update(name, subscription=subscription)
    client = world.clients[name]
    owned = world.partitions(client.owned)
    world.send(name, client.epoch, arrives, world.subscriptions[subscription], owned=owned, is_full=True)


def _acquire(name: str, world: SearchWorld) -> None:
    world.update(name, owned=world.clients[name].told)


def _crash(name: str, world: SearchWorld) -> None:
    world.end_process(name)


def _leave(name: str, epoch: int, world: SearchWorld) -> None:
    """A client gives up its partitions before it leaves; whether the answer arrives makes no difference to it."""
    world.update(name, owned=0)
    world.send(name, epoch, False)
    world.end_process(name)


def _expire_session(member_id: str, world: SearchWorld) -> None:
    world.expire_session(member_id)


def _expire_rebalance(member_id: str, world: SearchWorld) -> None:
    world.expire_rebalance(member_id)


def _fail_to_resolve(world: SearchWorld) -> None:
    world.resolving = ()


# Checks --------------------------------------------------------------------------------------------------------------


def check(world: SearchWorld) -> None:
    """Raises Violation."""
    state = world.state
    owners: dict[object, str] = {}
    for member in state.members.values():
        current = member.current
        for partition in (*current.assigned, *current.pending_revocation):
            if partition in owners:
                raise Violation(f"{partition} belongs to {owners[partition]} and {member.member_id}")
            owners[partition] = member.member_id
        if current.member_epoch >= 0:
            epochs = (current.previous_member_epoch, current.member_epoch, state.target.epoch, state.epoch.epoch)
            if list(epochs) != sorted(epochs):
                raise Violation(f"epochs of {member.member_id} out of order: {epochs}")
    if owners != state.owners:
        raise Violation(f"the index of owners is {state.owners}, expected {owners}")
    _check_targets(world)
    _check_clients(world)


def _check_targets(world: SearchWorld) -> None:
    state = world.state
    targets = [partition for target in state.targets.values() for partition in target]
    if len(targets) != len(set(targets)):
        raise Violation(f"a partition is in two targets: {state.targets}")
    if state.targets.keys() - state.members.keys():
        raise Violation(f"a target has no member: {state.targets}")
    if state.members and state.target.epoch == state.epoch.epoch:
        _check_cover(world, set(targets))


def _check_cover(world: SearchWorld, targets: set[Partition]) -> None:
    """Not while a regular expression is not resolved: as in Kafka, the target may be that of other subscriptions."""
    state = world.state
    if state.regex_members.keys() == state.regexes.keys() and targets != set(world.subscribed()):
        raise Violation(f"targets do not cover the topics: {state.targets}")
    if not state.regexes.keys() <= state.regex_members.keys():
        raise Violation(f"a regular expression has no member: {state.regexes}")


def _check_clients(world: SearchWorld) -> None:
    for name, client in world.clients.items():
        member = world.member_of(name)
        if client.epoch == 0 or client.is_fenced or member is None:
            continue
        held = bits(member.current.assigned) | bits(member.current.pending_revocation)
        if client.owned & ~held:
            raise Violation(f"{name} owns {world.partitions(client.owned & ~held)}, which are not its own any more")


def check_refusals(world: SearchWorld) -> None:
    """Requests that no client of this search sends, because it has no reason to. Raises Violation."""
    for member in world.state.members.values():
        epoch, previous = member.current.member_epoch, member.current.previous_member_epoch
        instance_id = member.about.instance_id
        _expect(world, member.member_id, instance_id, max(epoch, 0) + 99, ErrorCode.FENCED_MEMBER_EPOCH)
        for older in range(1, epoch):
            if older != previous:
                _expect(world, member.member_id, instance_id, older, ErrorCode.FENCED_MEMBER_EPOCH)
        if instance_id is not None:
            _expect(world, "other", instance_id, 1, ErrorCode.FENCED_INSTANCE_ID)
            is_released = epoch == LEAVE_STATIC_EPOCH
            _expect(world, "other", instance_id, 0, NO_ERROR if is_released else ErrorCode.UNRELEASED_INSTANCE_ID)
    _expect(world, "other", None, 1, ErrorCode.UNKNOWN_MEMBER_ID)


def _expect(world: SearchWorld, member_id: str, instance_id: str | None, epoch: int, expected: ErrorCode) -> None:
    topics, timeout_ms = (BOTH.topics, 1) if epoch == JOIN_EPOCH else (None, -1)
    request = ConsumerHeartbeat(
        *("g", member_id, epoch, instance_id), rebalance_timeout_ms=timeout_ms, topics=topics, owned=()
    )
    error = world.error_of(request)
    if error is not expected:
        raise Violation(f"a heartbeat of {member_id} with epoch {epoch} gets {error!r}, expected {expected!r}")


def check_ends_well(world: SearchWorld) -> None:
    """Nothing is lost any more, sessions of clients that are gone end, and the others beat. Raises Violation."""
    for _ in range(SETTLE_ROUNDS):
        alive = {world.member_id(name) for name, client in world.clients.items() if client.epoch}
        for member_id in world.state.members.keys() - alive:
            world.expire_session(member_id)
        for name in world.names:
            _take_turn(name, world)
        if world.resolving:
            world.resolve()
    clients = [client for client in world.clients.values() if client.epoch]
    is_resolved = world.state.regexes.keys() == world.state.regex_members.keys()
    is_done = is_resolved and all(client.owned == client.told for client in clients)
    owned = sum(client.owned for client in clients)
    if clients and not (is_done and world.state.phase is GroupPhase.STABLE and owned == bits(world.subscribed())):
        raise Violation(f"the group does not settle: {world.state.phase}, {world.clients}")


def _take_turn(name: str, world: SearchWorld) -> None:
    client = world.clients[name]
    if client.epoch and client.owned != client.told:
        _acquire(name, world)
    if client.epoch and client.missed:
        _full(name, client.subscription, True, world)
    elif client.epoch:
        _beat(name, True, True, world)


# Search --------------------------------------------------------------------------------------------------------------


class Search:
    """Breadth first. ``settle_every``: of how many states one is checked to end well. ``kind``: of subscriptions."""

    def __init__(self, names: tuple[str, ...], settle_every: int, kind: str = "names") -> None:
        self.names = names
        self.kind = kind
        self.settle_every = settle_every
        self.steps = 0
        self.settled = 0
        self._indexes: dict[int, int] = {}
        self._parents = array("q")
        self._texts: list[str] = []
        self._text_numbers: dict[str, int] = {}
        self._text_of = array("H")
        self._queue: deque[tuple[int, bytes]] = deque()

    def run(self, states_max: int) -> Found:
        self._add(SearchWorld(self.names, self.kind), -1, "start")
        while self._queue and len(self._indexes) < states_max:
            index, packed = self._queue.popleft()
            self._expand(index, marshal.loads(packed))
        return Found(len(self._indexes), self.steps, self.settled, not self._queue)

    def _expand(self, index: int, snapshot: Snapshot) -> None:
        for text, step in list(steps(self._thaw(snapshot))):
            self._take(index, snapshot, text, step, is_late=True)

    def _take(self, index: int, snapshot: Snapshot, text: str, step: Step, is_late: bool) -> None:
        """If the step depends on the time it is taken again before the assignment interval is over."""
        world = self._thaw(snapshot)
        world.is_late = is_late
        try:
            step(world)
            world.mark_fenced()
            self.steps += 1
            self._add(world, index, text if is_late else f"{text}, before the interval is over")
        except Exception as error:
            raise Violation("\n".join([str(error), *self.path(index), text])) from error
        if is_late and world.has_asked_time:
            self._take(index, snapshot, text, step, is_late=False)

    def _add(self, world: SearchWorld, parent: int, text: str) -> None:
        packed = marshal.dumps(world.freeze())
        key = hash(packed)
        if key in self._indexes:
            return
        check(world)
        index = self._indexes[key] = len(self._indexes)
        self._parents.append(parent)
        self._text_of.append(self._text_numbers.setdefault(text, len(self._text_numbers)))
        if len(self._text_numbers) > len(self._texts):
            self._texts.append(text)
        self._queue.append((index, packed))
        if index % self.settle_every == 0:
            self.settled += 1
            check_refusals(self._thaw(marshal.loads(packed)))
            check_ends_well(self._thaw(marshal.loads(packed)))

    def _thaw(self, snapshot: Snapshot) -> SearchWorld:
        return SearchWorld.thaw(self.names, self.kind, snapshot)

    def path(self, index: int) -> Iterable[str]:
        """The steps that lead to a state."""
        texts: list[str] = []
        while index >= 0:
            texts.append(self._texts[self._text_of[index]])
            index = self._parents[index]
        return reversed(texts)


CASES = (
    *((("a", "b", "S"), "names"), (("a", "b", "c"), "names"), (("a", "S", "T"), "names"), (("S", "T", "U"), "names")),
    *((("a", "b", "S"), "regexes"), (("a", "b", "S"), "mixed")),
)
"""The clients of the long searches, and the kind of their subscriptions."""

STATES_MAX = 1_000_000


def run_case(case: int) -> str | None:
    """A long search, whose figures are printed. Returns what was wrong."""
    names, kind = CASES[case]
    start_s = time.monotonic()
    try:
        found = Search(names, 50, kind).run(STATES_MAX)
    except Violation as violation:
        return str(violation)
    print(f"case {case}: {describe(found, names, kind, time.monotonic() - start_s)}", flush=True)
    return None


def describe(found: Found, names: tuple[str, ...], kind: str, took_s: float) -> str:
    """One line for a report."""
    states = "all states" if found.is_closed else "states, not all"
    return (
        f"{found.states:,} {states}; {found.steps:,} steps; {found.settled:,} states were seen to end well; "
        f"{len(PARTITIONS)} partitions, clients {', '.join(names)}, {kind}, {took_s:,.0f} s; no violation"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", default="a,b,S", metavar="NAME,NAME", help="capital letters are static members")
    parser.add_argument("--subscriptions", default="names", choices=SUBSCRIPTIONS, metavar="KIND")
    parser.add_argument("--case", type=int, metavar="N", help="the clients of a long search, instead of --clients")
    parser.add_argument("--states", type=int, default=STATES_MAX, metavar="N", help="stop after so many states")
    parser.add_argument("--settle", type=int, default=50, metavar="N", help="check that every N-th state ends well")
    options = parser.parse_args()
    start_s = time.monotonic()
    given = tuple(options.clients.split(",")), options.subscriptions
    names, subscriptions = given if options.case is None else CASES[options.case]
    found = Search(names, options.settle, subscriptions).run(options.states)
    print(describe(found, names, subscriptions, time.monotonic() - start_s))


if __name__ == "__main__":
    main()
