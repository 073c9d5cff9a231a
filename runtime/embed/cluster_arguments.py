"""The arguments of an embedded coordinator in a cluster, and their checks."""

from __future__ import annotations

from ..common.errors import StartError
from ..settings.cluster import parse_node_name
from ..settings.table import ClusterOptions

FREE_PORT = "127.0.0.1:0"
"""Where a node of a cluster listens by default, so that other processes of the machine reach it."""

OBSERVER = "observer"
"""The name by which the store's operators see an observer without a name."""


def make_cluster_options(url: object, node_name: object, is_observer: bool) -> ClusterOptions:
    """Raises StartError."""
    if url is None:
        if is_observer or node_name:
            raise StartError("observer and node_name are for a Coordinator in a cluster: give cluster='URL', too")
        return ClusterOptions()
    if not isinstance(url, str) or "://" not in url:
        raise StartError(f"bad cluster {url!r}: expected the URL of a store, as in 'postgresql://user@host/database'")
    if not isinstance(node_name, str):
        raise StartError(f"bad node_name {node_name!r}: expected text, as in 'web-1'")
    return ClusterOptions(url=url, node_name=parse_node_name(node_name))


def check_observer(**arguments: object) -> None:
    """Raises StartError for an argument that only a node can have."""
    for name, value in arguments.items():
        if value is not None:
            raise StartError(f"an observer owns nothing and does not listen, so it has no {name}: leave it out")
