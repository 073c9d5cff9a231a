"""Addresses of clients, for the log and for responses."""

from __future__ import annotations

from ...common.ip_addresses import parse_ip


def host_and_port(host: str, port: int) -> str:
    """Format an address: "127.0.0.1:50000", "[::1]:50000"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def java_address(host: str) -> str:
    """Format an address as Java does, for DescribeGroups: "/127.0.0.1"; IPv6 as eight groups without "::"."""
    if ":" not in host:
        return f"/{host}"
    address = parse_ip(host)
    if address.version == 4:
        return f"/{address}"
    return "/" + ":".join(format(int(group, 16), "x") for group in address.exploded.split(":"))
