"""Requests between nodes: who is believed to be a node, and which requests come too late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from callboard.runtime.cluster.cluster_node import ClusterNode
from callboard.runtime.cluster.credentials import client_id, parse_client_id
from callboard.runtime.cluster.node_gate import NodeGate
from callboard.runtime.cluster.register import Endpoint, Register, empty_register
from callboard.runtime.cluster.session import NodeIdentity, Session
from callboard.runtime.cluster.session_environment import SessionEnvironment
from callboard.runtime.cluster.session_producer_ids import IDS_PER_SESSION, SessionProducerIds
from callboard.runtime.kafka.audit.audited import who
from callboard.runtime.kafka.authentication.principal import ANONYMOUS
from callboard.runtime.kafka.connections.client_ids import shown_client_id
from callboard.runtime.kafka.peer_gate import Sender
from callboard.runtime.log.partition import TOPIC
from callboard.runtime.log.partition_counts import PartitionCounts

from .memory_store import Memory, MemoryStore

COUNTS = PartitionCounts(4, 4)
SECRET = b"s" * 32
HERE = {"PLAINTEXT": Endpoint("127.0.0.1", 9092)}


def make_node(*others: str) -> ClusterNode:
    """A node that has joined at version 2, with other sessions in its register."""
    store, environment, identity = MemoryStore(Memory()), SessionEnvironment(), NodeIdentity("a", HERE)
    node = ClusterNode(store, environment, identity, COUNTS, print)
    node.secret = SECRET
    node.session = Session(store, environment, identity, node)
    node.session.register.current = register_of(node.session.name, *others)
    return node


def register_of(*sessions: str) -> Register:
    register = empty_register(COUNTS, "t", "c", 1500)
    for number, session in enumerate(sessions):
        register = register.with_node(session, f"n{number}", HERE, "")
    return register._replace(version=2)


class OpenConnection:
    """Of a client."""


CONNECTION = OpenConnection()


def admit(
    node: ClusterNode, gate: NodeGate, sender: Sender, secret: bytes = SECRET, connection: object = CONNECTION
) -> Sender | None:
    assert node.session is not None
    return gate.admit(client_id(secret, sender, node.session.name), connection)


def test_sender_is_what_it_has_signed() -> None:
    sender = Sender("b-1", 7, 3)
    assert parse_client_id(SECRET, client_id(SECRET, sender, "a-1"), "a-1") == sender


@pytest.mark.parametrize(
    "text",
    [
        "",
        "rdkafka",
        "callboard-node",
        "callboard-node/b-1/1/1",
        "callboard-node/b-1/x/1/0",
        "callboard-node/b-1/1/1/" + "0" * 64,
        "callboard-node/b-1/\u00b2/1/0",
        pytest.param(f"callboard-node/b-1/{5000 * '1'}/1/0", id="long number"),
        client_id(b"x" * 32, Sender("b-1", 1, 1), "a-1"),
        client_id(SECRET, Sender("b-1", 1, 1), "a-2"),
        client_id(SECRET, Sender("b-1", 1, 1), "a-1").replace("/1/1/", "/2/1/"),
    ],
)
def test_anything_else_is_a_client(text: str) -> None:
    assert parse_client_id(SECRET, text, "a-1") is None


def test_gate_admits_nodes_of_the_register_and_newer_ones() -> None:
    node = make_node("b-1")
    gate = NodeGate(node)
    assert admit(node, gate, Sender("b-1", 1, 2)) is not None
    assert admit(node, gate, Sender("c-1", 1, 3)) is not None, "it has joined by a version that is not known here yet"
    assert admit(node, gate, Sender("d-1", 1, 2)) is None, "it was declared dead"
    assert admit(node, gate, Sender("b-1", 2, 2), b"x" * 32) is None


def test_connection_that_was_replaced_is_too_late() -> None:
    node = make_node("b-1", "c-1")
    gate = NodeGate(node)
    for number in (1, 2, 2):
        assert admit(node, gate, Sender("b-1", number, 2)) is not None
    assert admit(node, gate, Sender("b-1", 1, 2)) is None
    assert admit(node, gate, Sender("c-1", 1, 2)) is not None


def test_proof_serves_one_connection_only() -> None:
    """Also after it is closed."""
    node = make_node("b-1")
    gate, first, other = NodeGate(node), OpenConnection(), OpenConnection()
    assert admit(node, gate, Sender("b-1", 1, 2), connection=first) is not None
    assert admit(node, gate, Sender("b-1", 1, 2), connection=other) is None
    assert admit(node, gate, Sender("b-1", 1, 2), connection=first) is not None
    del first
    assert admit(node, gate, Sender("b-1", 1, 2), connection=other) is None
    assert admit(node, gate, Sender("b-1", 2, 2), connection=other) is not None


def test_partition_that_was_gained_after_the_senders_register_is_refused() -> None:
    node = make_node("b-1")
    node.gained({0: 1, 1: 1})
    gate = NodeGate(node)
    assert gate.accepts(Sender("b-1", 1, 2), TOPIC, 0)
    assert not gate.accepts(Sender("b-1", 1, 1), TOPIC, 1)
    assert gate.accepts(Sender("b-1", 1, 1), "orders", 1)


def test_producer_ids_of_sessions_differ() -> None:
    first, second = SessionProducerIds(), SessionProducerIds()
    available: list[str] = []
    first.call_when_available(lambda: available.append("first"))
    first.start_session(5)
    second.start_session(6)
    assert available == ["first"]
    assert [first.allocate(), first.allocate()] == [5 * IDS_PER_SESSION, 5 * IDS_PER_SESSION + 1]
    assert second.allocate() == 6 * IDS_PER_SESSION


def test_proof_of_a_node_is_not_shown() -> None:
    text = client_id(SECRET, Sender("b-1", 7, 3), "a-1")
    assert shown_client_id(text) == "callboard-node/b-1/7/3"
    assert shown_client_id("a/b") == "a/b"
    connection: Any = SimpleNamespace(
        principal=ANONYMOUS, client_host="/10.0.0.5", peer="10.0.0.5:4711", client_id=text, listener="PLAINTEXT"
    )
    assert who(connection).client_id == "callboard-node/b-1/7/3"
