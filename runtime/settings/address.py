"""Addresses: HOST:PORT, as in options and in log lines."""

from __future__ import annotations

import re
from typing import NamedTuple

from ..common.errors import StartError
from ..common.ip_addresses import parse_ip

PORT_MAX = 65535
ADDRESS = re.compile(r"(?:\[(?P<v6>[0-9a-fA-F:.]+(?:%[\w.-]+)?)\]|(?P<host>[^\s:\[\]]*)):(?P<port>[0-9]{1,5})")


class Address(NamedTuple):
    """A host (a name, an address, or empty for all addresses) and a TCP port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


ALL_ADDRESSES = ("", "0.0.0.0", "::")  # nosec B104 # to recognise them
"""Hosts that a server can listen on, but no client can connect to."""

LOCALHOST = "localhost"
DEFAULT_LISTEN = Address("127.0.0.1", 9092)


def parse_address(option: str, text: str, lowest_port: int = 0) -> Address:
    """Parse HOST:PORT, with an IPv6 address in brackets. ``option`` is the name of the option in the error."""
    match = ADDRESS.fullmatch(text)
    if match is None:
        raise StartError(
            f"bad {option} '{text}': expected HOST:PORT, as in 127.0.0.1:9092 or [::1]:9092 (IPv6 in brackets)"
        )
    port = int(match["port"])
    if not lowest_port <= port <= PORT_MAX:
        raise StartError(f"bad {option} '{text}': expected a port from {lowest_port} to {PORT_MAX}, not {port}")
    return Address(match["v6"] or match["host"], port)


def parse_addresses(option: str, text: str) -> tuple[Address, ...]:
    """Parse one address or several with commas between, of servers to connect to. Raises StartError."""
    return tuple(parse_address(option, part.strip(), lowest_port=1) for part in text.split(","))


def parse_advertised(text: str) -> Address:
    """Parse the address that clients connect to: neither "all addresses" nor port 0."""
    address = parse_address("advertised", text, lowest_port=1)
    if address.host in ALL_ADDRESSES:
        raise StartError(
            f"bad advertised '{text}': expected a host that clients can reach, as in kafka.example.com:9092"
        )
    return address


def host_name(host: str) -> str:
    """The name in a header Host, without the port, in lower case; an IPv6 address without brackets."""
    if host.startswith("["):
        return host[1:].partition("]")[0].lower()
    return host.rpartition(":")[0].lower() if ":" in host else host.lower()


def is_loopback(host: str) -> bool:
    """Whether an address is in 127.0.0.0/8 (also mapped into IPv6), or is ::1."""
    try:
        return parse_ip(host).is_loopback
    except ValueError:
        return False
