"""Two nodes with one name, or with one address, are found and logged; an earlier session of a node is not."""

from __future__ import annotations

from pathlib import Path

from callboard.runtime.cluster.register import Endpoint, Register, empty_register
from callboard.runtime.cluster.twins import twins
from callboard.runtime.log.partition_counts import PartitionCounts

from .cluster_server_helpers import ClusterServer, cluster_of


def register_of(*nodes: tuple[str, dict[str, Endpoint]]) -> Register:
    """Each node's session is its place."""
    register = empty_register(PartitionCounts(2, 2), "t", "id", 1500)
    for place, (name, endpoints) in enumerate(nodes):
        register = register.with_node(str(place), name, endpoints, "1.0")
    return register


def test_nodes_with_own_names_and_addresses_have_no_twins() -> None:
    register = register_of(("a", {"A": Endpoint("h", 1), "B": Endpoint("h", 2)}), ("b", {"A": Endpoint("h", 2)}))
    assert [*twins(register, "0"), *twins(register, "1"), *twins(register, "not there")] == []


def test_node_with_the_same_name_is_found() -> None:
    register = register_of(("a", {"A": Endpoint("h", 1)}), ("a", {"A": Endpoint("h", 2)}))
    [problem] = twins(register, "0")
    assert problem.startswith("another node has the name a, too, at h:2: start one of them with another --node-name")


def test_node_with_the_same_address_of_a_listener_is_found() -> None:
    register = register_of(
        ("a", {"A": Endpoint("h", 1), "B": Endpoint("lb", 9)}), ("b", {"A": Endpoint("h", 2), "B": Endpoint("lb", 9)})
    )
    [problem] = twins(register, "1")
    assert problem.startswith("node a advertises lb:9 of the listener B, too: give each node an --advertised address")


def test_servers_log_a_twin_but_not_their_own_earlier_session(tmp_path: Path) -> None:
    (tmp_path / "shared").mkdir()
    url = (tmp_path / "shared").as_uri()
    with cluster_of(1, tmp_path, url) as [server]:
        server.end()
        server.start()
        server.wait_for_log("joined the cluster", 2)
        (tmp_path / "other").mkdir()
        twin = ClusterServer(tmp_path / "other", url, server.name)
        try:
            twin.start()
            for each in (twin, server):
                each.wait_for_log("clients cannot tell two nodes apart")
        finally:
            twin.end()
    # The addresses of the twins: neither is that of the session which ended with the first process.
    assert server.log.count("clients cannot tell two nodes apart") == 1
