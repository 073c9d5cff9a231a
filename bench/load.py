"""The load as a process of its own: it joins the groups, then runs heartbeats or commits as it is told to.

Orders come as JSON lines on standard input, answers go as JSON lines to standard output; the first one says that it is
ready. Every answer of a server is compared, whole, with the bytes that it must be. The first wrong one ends it.
"""

from __future__ import annotations

import argparse
import gc
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from typing import Any

from callboard.bench.bare_server import commit_answer
from callboard.bench.enrolment import (
    Member,
    commit,
    commit_fields,
    committed,
    create_topic,
    enrol,
    find_coordinator,
    leave,
)
from callboard.bench.harness import BenchError, Child, process_cpu_s
from callboard.bench.lanes import Lane, Outcome, Reel, drive
from callboard.bench.wire import CORRELATION_AT_ANSWER, CORRELATION_AT_REQUEST, Client, api, no_error

OFFSET_MARK = 0x5A5A5A5A5A5A5A5A  # finds the offset's place in an encoded request
ORDER_TIMEOUT_S = 120.0  # beyond the seconds of a run
HEARTBEATS, COMMITS = "heartbeats", "commits"


def group_names(count: int) -> list[str]:
    return [f"load-{index:03d}" for index in range(count)]


class LoadProcess(Child):
    """The other side: starts the process and gives orders. ``groups`` is given as a number, see ``group_names``.

    ``joins`` False skips the set-up: members and their ids are made up, as the bare server has no groups.
    """

    def __init__(self, address: str, connections: int, groups: int, joins: bool, server_pid: int | None) -> None:
        arguments = [address, "--connections", str(connections), "--groups", str(groups)]
        arguments += [] if joins else ["--no-join"]
        arguments += [] if server_pid is None else ["--server-pid", str(server_pid)]
        super().__init__(["-m", "callboard.bench.load", *arguments], "the load generator")
        try:
            self._answer(ORDER_TIMEOUT_S)
        except BaseException:
            self.stop()
            raise

    def run(self, requests: str, in_flight: int, seconds: float) -> Outcome:
        """Keep ``in_flight`` of ``requests`` (heartbeats or commits) out on each connection."""
        return Outcome(**self._order("run", seconds, requests=requests, in_flight=in_flight, seconds=seconds))

    def verify(self) -> int:
        """Read back every last committed offset; returns how many were compared."""
        return int(self._order("verify")["compared"])

    def leave(self) -> None:
        self._order("leave")

    def _order(self, deed: str, runs_s: float = 0.0, **order: Any) -> dict[str, Any]:
        self.write_line(json.dumps({"do": deed, **order}))
        return self._answer(runs_s + ORDER_TIMEOUT_S)

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.read_line(timeout_s))
        if "error" in answer:
            raise BenchError(answer["error"])
        return answer


class Load:
    """Connections, their members, and a lane for each kind of request on each connection."""

    def __init__(self, clients: Sequence[Client], groups: int, joins: bool, server_pid: int | None) -> None:
        names = group_names(groups)
        own = [names[index % groups] for index in range(len(clients))]
        self._server_pid = server_pid
        self.clients = clients
        self.members = self._join(own) if joins else _made_up(own)
        pairs = list(zip(self.clients, self.members, strict=True))
        self._lanes = {
            HEARTBEATS: [heartbeat_lane(client, member) for client, member in pairs],
            COMMITS: [commit_lane(client, member) for client, member in pairs],
        }

    def obey(self, order: dict[str, Any]) -> dict[str, Any]:
        """Carry out one order. Raises BenchError at the first wrong answer."""
        deeds: dict[str, Callable[[], dict[str, Any]]] = {
            "run": lambda: self._run(order["requests"], order["in_flight"], order["seconds"]),
            "verify": self._verify,
            "leave": self._leave,
        }
        return deeds[order["do"]]()

    def _join(self, own: Sequence[str]) -> list[Member]:
        first = self.clients[0]
        topic = create_topic(first, len(own))
        for group_id in sorted(set(own)):
            find_coordinator(first, group_id)
        members = enrol(self.clients, own, topic)
        for client, member in zip(self.clients, members, strict=True):
            commit(client, member, 0)
        return members

    def _run(self, requests: str, in_flight: int, seconds: float) -> dict[str, Any]:
        lanes = self._lanes[requests]
        return drive(lanes, in_flight, seconds, partial(process_cpu_s, self._server_pid))._asdict()

    def _verify(self) -> dict[str, Any]:
        for client, member, lane in zip(self.clients, self.members, self._lanes[COMMITS], strict=True):
            expected, told = max(0, lane.answered - 1), committed(client, member)
            if told != expected:
                raise BenchError(
                    f"{member.group_id!r} committed {expected} to {member.topic}-{member.partition}, "
                    f"the server tells {told}"
                )
        return {"compared": len(self.members)}

    def _leave(self) -> dict[str, Any]:
        for client, member in zip(self.clients, self.members, strict=True):
            leave(client, member)
        return {"left": len(self.members)}


def heartbeat_lane(client: Client, member: Member) -> Lane:
    """Heartbeat v4; all answers are alike but for the correlation id."""
    beat = api("heartbeat", 4)
    request = beat.request(0, group_id=member.group_id, generation_id=member.generation, member_id=member.member_id)
    answer = beat.answer(0, throttle_time=timedelta(0), error_code=no_error())
    return Lane(
        client.socket,
        f"heartbeats of {member.group_id!r}",
        Reel(request, [(CORRELATION_AT_REQUEST, 4)]),
        Reel(answer, [(CORRELATION_AT_ANSWER, 4)]),
    )


def commit_lane(client: Client, member: Member) -> Lane:
    """OffsetCommit v9 of one offset, which grows by one with each request."""
    answer = commit_answer(member.topic, member.partition)
    return Lane(
        client.socket,
        f"commits of {member.group_id!r}",
        commit_requests(member),
        Reel(answer, [(CORRELATION_AT_ANSWER, 4)]),
    )


def commit_requests(member: Member) -> Reel:
    """Request number n commits offset n."""
    request = api("offset_commit", 9).request(0, **commit_fields(member, OFFSET_MARK))
    offset_at = request.index(OFFSET_MARK.to_bytes(8, "big"))
    return Reel(request, [(CORRELATION_AT_REQUEST, 4), (offset_at, 8)])


def _made_up(own: Sequence[str]) -> list[Member]:
    """Members for a server without groups, with ids as long as real ones."""
    return [Member(group_id, f"load-{index:036d}", 1, "load", index) for index, group_id in enumerate(own)]


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m callboard.bench.load")
    parser.add_argument("address", metavar="HOST:PORT")
    parser.add_argument("--connections", type=int, default=50)
    parser.add_argument("--groups", type=int, default=50)
    parser.add_argument("--no-join", action="store_true", help="the server has no groups: make members up")
    parser.add_argument("--server-pid", type=int, help="whose CPU time to read")
    options = parser.parse_args(argv)
    try:
        _serve_orders(options)
    except (BenchError, OSError) as error:
        _say({"error": str(error)})
        return 1
    return 0


def _serve_orders(options: argparse.Namespace) -> None:
    with ExitStack() as stack:
        clients = [stack.enter_context(Client(options.address)) for _ in range(options.connections)]
        load = Load(clients, options.groups, not options.no_join, options.server_pid)
        gc.disable()  # nothing here makes cycles, and a pause would count as the server's
        _say({"ready": options.connections})
        for line in sys.stdin:
            _say(load.obey(json.loads(line)))


def _say(answer: dict[str, Any]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
