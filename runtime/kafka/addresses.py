"""Addresses of clients, for the log and for responses."""

from __future__ import annotations


def host_and_port(host: str, port: int) -> str:
    """Format an address: "127.0.0.1:50000", "[::1]:50000"."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def java_address(host: str) -> str:
    """Format an address as Java does, for DescribeGroups: "/127.0.0.1"; IPv6 as eight groups without "::"."""
    if ":" not in host:
        return f"/{host}"
    import ipaddress

    address = ipaddress.ip_address(host.partition("%")[0])
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return f"/{address.ipv4_mapped}"
    return "/" + ":".join(format(int(group, 16), "x") for group in address.exploded.split(":"))
