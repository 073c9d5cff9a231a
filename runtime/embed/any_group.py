"""The admin methods' requests on a node, about any group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .node_requests import NodeRequests

if TYPE_CHECKING:
    from ..node.node import Node


def requests_of(node: Node) -> NodeRequests:
    """In a cluster they ask the owner of each group. A node that is alone imports nothing of that."""
    cluster = node.environment.cluster
    if cluster is None:
        return NodeRequests(node)
    from .forwarded_requests import ForwardedRequests

    return ForwardedRequests(node, cluster.questions)
