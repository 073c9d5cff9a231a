"""Addresses of clients, for the log and for responses."""

from __future__ import annotations

from ...common.ip_addresses import java_form


def host_and_port(host: str, port: int) -> str:
    """Format an address: "127.0.0.1:50000", "[::1]:50000"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def java_address(host: str) -> str:
    """Format an address as Java does, for DescribeGroups: "/127.0.0.1"; IPv6 as eight groups without "::"."""
    return f"/{java_form(host)}" if ":" in host else f"/{host}"
