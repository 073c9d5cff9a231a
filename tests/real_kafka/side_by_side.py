"""Sends the same request to Callboard and to a real Kafka, and compares their responses.

Some values are replaced by common names before, because they differ: ids of members, topics, producers and the cluster,
the port, node ids, error messages. All other fields must be equal.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from itertools import zip_longest
from pprint import pformat
from types import TracebackType
from typing import Any

from peers.waiting import wait_until
from peers.wire import Hangup, Wire, decode, encode

Address = tuple[str, int]
Answer = dict[str, Any]

COLUMN_CHARS = 76
HANGUP: Answer = {"hangup": True}

NODE_FIELDS = frozenset({"node_id", "controller_id", "leader_id"})
NODE_LIST_FIELDS = frozenset({"replica_nodes", "isr_nodes", "offline_replicas"})
MEMBER_FIELDS = frozenset({"member_id", "leader"})


@dataclass(frozen=True)
class PairedValue:
    """A pair of values, one of each server: member ids, topic ids or responses."""

    ours: Any
    theirs: Any

    def __getitem__(self, key: str | int) -> PairedValue:
        return PairedValue(self.ours[key], self.theirs[key])


class Side:
    """Replaces the ids of one server by common names, numbered in the order of appearance."""

    def __init__(self, address: Address) -> None:
        self.address = address
        self._members: dict[str, str] = {}
        self._topics: dict[uuid.UUID, str] = {}
        self._producers: dict[int, str] = {}

    def common(self, answer: Any) -> Any:
        """Return the response with common names and sorted lists: their order is unspecified."""
        return self._value("", answer)

    def _value(self, field: str, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._value(name, item) for name, item in value.items()}
        if isinstance(value, list):
            return sorted((self._value(field, item) for item in value), key=lambda item: json.dumps(item, default=repr))
        return self._name(field, value)

    def _name(self, field: str, value: Any) -> Any:
        if field in MEMBER_FIELDS and value:
            return self._members.setdefault(value, f"<member {len(self._members) + 1}>")
        if field == "topic_id" and value:
            return self._topics.setdefault(value, f"<topic {len(self._topics) + 1}>")
        if field == "producer_id" and value >= 0:
            return self._producers.setdefault(value, f"<producer {len(self._producers) + 1}>")
        if (field in NODE_FIELDS or field in NODE_LIST_FIELDS) and value >= 0:
            return "<node>"
        if field == "port" and value == self.address[1]:
            return "<port>"
        if field in ("cluster_id", "error_message") and value:
            return f"<{field}>"
        return value


class PairedConnection:
    """A connection to each of the two servers. Kafka handles the requests of a connection one after the other."""

    def __init__(self, ours: Side, theirs: Side) -> None:
        self._sides = (ours, theirs)
        self._wires = tuple(Wire(*side.address) for side in self._sides)

    def ask(self, name: str, version: int, **values: Any) -> PairedValue:
        """Send a request to both servers, compare the responses and return them."""
        self.send(name, version, **values)
        return self.receive(name, version)

    def send(self, name: str, version: int, **values: Any) -> None:
        """Send a request to both servers without waiting for the responses."""
        for side, wire in enumerate(self._wires):
            wire.send(encode(name, version, _of_side(values, side)))

    def receive(self, name: str, version: int) -> PairedValue:
        """Receive, compare and return the responses to the oldest request."""
        return self._receive(f"{name} v{version}", lambda payload: decode(name, version, payload))

    def ask_uncompared(self, name: str, version: int, **values: Any) -> PairedValue:
        """Return both responses without a comparison, for example to wait for a state."""
        self.send(name, version, **values)
        return PairedValue(*(decode(name, version, wire.receive()) for wire in self._wires))

    def ask_until(self, accept: Callable[[Answer], object], name: str, version: int, **values: Any) -> PairedValue:
        """Repeat the request to each server until ``accept`` is true; compare and return the last responses."""

        def ask(side: int) -> Answer:
            wire = self._wires[side]
            wire.send(encode(name, version, _of_side(values, side)))
            return _receive(wire, lambda payload: decode(name, version, payload))

        answers = PairedValue(*(wait_until(partial(ask, side), accept, f"an answer to {name}") for side in (0, 1)))
        self.compare(f"{name} v{version}", answers)
        return answers

    def send_raw(self, payload: bytes, what: str, read: Callable[[bytes], Answer]) -> PairedValue:
        """Send arbitrary bytes; a closed connection counts as a response."""
        for wire in self._wires:
            wire.send(payload)
        return self._receive(what, read)

    def compare(self, what: str, answers: PairedValue) -> None:
        """Raise AssertionError if the responses differ after the replacement of names."""
        ours, theirs = self._sides[0].common(answers.ours), self._sides[1].common(answers.theirs)
        assert ours == theirs, f"{what}\n{format_columns(ours, theirs)}"

    def close(self) -> None:
        for wire in self._wires:
            wire.close()

    def _receive(self, what: str, read: Callable[[bytes], Answer]) -> PairedValue:
        answers = PairedValue(*(_receive(wire, read) for wire in self._wires))
        self.compare(what, answers)
        return answers


class SideBySide:
    """Our server and a real Kafka. Closes the connections of a test at its end."""

    def __init__(self, ours: Address, theirs: Address) -> None:
        self._ours = Side(ours)
        self._theirs = Side(theirs)
        self._closing = ExitStack()

    def connection(self) -> PairedConnection:
        connection = PairedConnection(self._ours, self._theirs)
        self._closing.callback(connection.close)
        return connection

    def __enter__(self) -> SideBySide:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing.close()


def format_columns(ours: Any, theirs: Any) -> str:
    """Format both responses in two columns; lines that differ are marked with ``>``."""
    left, right = (pformat(answer, width=COLUMN_CHARS, sort_dicts=False).splitlines() for answer in (ours, theirs))
    rows = [f"  {'ours':{COLUMN_CHARS}}   Kafka's"]
    for our_line, their_line in zip_longest(left, right, fillvalue=""):
        rows.append(f"{' ' if our_line == their_line else '>'} {our_line:{COLUMN_CHARS}} | {their_line}")
    return "\n".join(rows)


def _receive(wire: Wire, read: Callable[[bytes], Answer]) -> Answer:
    try:
        payload = wire.receive()
    except Hangup:
        return HANGUP
    return read(payload)


def _of_side(value: Any, side: int) -> Any:
    """Replace each PairedValue in a request by its value for one server."""
    if isinstance(value, PairedValue):
        return value.theirs if side else value.ours
    if isinstance(value, Mapping):
        return {name: _of_side(item, side) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [_of_side(item, side) for item in value]
    return value
