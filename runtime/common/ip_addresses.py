"""IP addresses in the one form in which they are compared."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ipaddress import IPv4Address, IPv6Address


def parse_ip(text: str) -> IPv4Address | IPv6Address:
    """An address without its zone. One that is mapped into IPv6 is IPv4's. Raises ValueError for what is no address."""
    import ipaddress

    address = ipaddress.ip_address(text.partition("%")[0] if ":" in text else text)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return mapped or address


def java_form(text: str) -> str:
    """An address as Java formats it: IPv6 as eight groups without "::". Raises ValueError for what is no address."""
    address = parse_ip(text)
    if address.version == 4:
        return str(address)
    return ":".join(format(int(group, 16), "x") for group in address.exploded.split(":"))
