"""The options of a server in a cluster, and of one with several processes."""

from __future__ import annotations

import re

from ..common.errors import StartError
from .address import PORT_MAX
from .table import ClusterOptions

NODE_NAME = re.compile(r"[A-Za-z0-9_.-]{0,60}")


def parse_node_name(text: str) -> str:
    if NODE_NAME.fullmatch(text) is None:
        raise StartError(f"bad node name {text!r}: expected at most 60 letters, digits, dots, hyphens and underscores")
    return text


WORKERS_MAX = 256
PORTS = re.compile(r"([0-9]{1,5})-([0-9]{1,5})")


def check_workers(workers: int, ports: tuple[int, int] | None, listeners: int) -> int:
    if not 1 <= workers <= WORKERS_MAX:
        raise StartError(f"bad workers {workers}: expected 1 to {WORKERS_MAX}")
    needed = workers * listeners
    if ports is not None and ports[1] - ports[0] + 1 < needed:
        each = f"{workers} workers" + (f" and each of {listeners} listeners" if listeners > 1 else "")
        raise StartError(
            f"bad worker ports {ports[0]}-{ports[1]}: expected a port for each of {each}, "
            f"as in {ports[0]}-{ports[0] + needed - 1}"
        )
    return workers


def parse_ports(text: str) -> tuple[int, int]:
    """Parse FIRST-LAST."""
    match = PORTS.fullmatch(text)
    first, last = map(int, match.groups()) if match else (0, 0)
    if not 1 <= first <= last <= PORT_MAX:
        raise StartError(f"bad worker ports '{text}': expected FIRST-LAST, as in 9101-9104, from 1 to {PORT_MAX}")
    return first, last


def parse_cluster(url: str, node_name: str, workers: int, ports: str | None, listeners: int) -> ClusterOptions:
    """``listeners``: their number. Raises StartError for the first that is wrong."""
    worker_ports = None if ports is None else parse_ports(ports)
    return ClusterOptions(
        url, parse_node_name(node_name), check_workers(workers, worker_ports, listeners), worker_ports
    )
