"""Listeners: where a server accepts connections, and which addresses it gives to the clients of each.

Names, forms and rules are those of Kafka's ``listeners``, ``advertised.listeners``, ``listener.security.protocol.map``
and ``inter.broker.listener.name``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import NamedTuple

from ..common.errors import StartError
from .address import DEFAULT_LISTEN, Address, is_loopback, parse_address, parse_advertised
from .listener_settings import (
    CREATION_RATE,
    MAX_CONNECTIONS,
    TLS_WORDS,
    ListenerValues,
    check_listener_names,
    find_listener_setting,
    number_of,
    values_of_listener,
)

PLAINTEXT = "PLAINTEXT"
SSL = "SSL"
SASL_PLAINTEXT = "SASL_PLAINTEXT"
SASL_SSL = "SASL_SSL"
PROTOCOLS = (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL)
"""The protocols that listeners may have. Without a row in the map, a listener with such a name has this protocol."""
TLS_PROTOCOLS = frozenset({SSL, SASL_SSL})
SASL_PROTOCOLS = frozenset({SASL_PLAINTEXT, SASL_SSL})

NAME = re.compile(r"[A-Za-z0-9_.-]+")
MAP_ROW = re.compile(r"([A-Za-z0-9_.-]+):([A-Za-z0-9_]+)")
NAME_END = "://"


class Listener(NamedTuple):
    """``listen``: the address that it listens on. ``advertised``: the address for clients; None: the same.

    Clients of a listener that is not advertised get no addresses, as in Kafka. ``settings``: those that are given for
    it, see ``listener_settings``.
    """

    name: str = PLAINTEXT
    protocol: str = PLAINTEXT
    listen: Address = DEFAULT_LISTEN
    advertised: Address | None = None
    is_advertised: bool = True
    settings: ListenerValues = {}

    @property
    def has_tls(self) -> bool:
        return self.protocol in TLS_PROTOCOLS

    @property
    def has_sasl(self) -> bool:
        return self.protocol in SASL_PROTOCOLS

    @property
    def max_connections(self) -> int:
        """Raises StartError if it is no number."""
        return number_of(self.settings, MAX_CONNECTIONS)

    @property
    def max_connection_creation_rate(self) -> int:
        """Raises StartError if it is no number from 1."""
        rate = number_of(self.settings, CREATION_RATE)
        if rate < 1:
            raise StartError(f"bad value '{rate}' for setting '{CREATION_RATE}' of {self.name}: expected 1 or more")
        return rate


def parse_listeners(
    listen: Sequence[str], advertised: Sequence[str] | None = None, protocol_map: str = ""
) -> tuple[Listener, ...]:
    """The listeners, in order. Each text has one or more of NAME://HOST:PORT, with commas; without a name PLAINTEXT.

    ``advertised``: None if clients use the addresses that the server listens on. Raises StartError.
    """
    addresses = _by_name("listen", listen)
    _check_ports(addresses)
    given = None if advertised is None else _by_name("advertised", advertised)
    for name in given or ():
        if name not in addresses:
            raise StartError(
                f"the advertised listener '{name}' does not exist: expected one of the listeners {', '.join(addresses)}"
            )
    protocols = _parse_protocols(protocol_map)
    return tuple(
        Listener(
            name,
            _protocol(name, protocols),
            address,
            given.get(name) if given else None,
            given is None or name in given,
        )
        for name, address in addresses.items()
    )


def with_settings(
    listeners: Sequence[Listener], given: Mapping[str, str], environment: Mapping[str, str]
) -> tuple[Listener, ...]:
    """Give each listener its settings. ``environment``: has secrets. Raises StartError for those that nothing uses."""
    check_listener_names(given, [listener.name for listener in listeners])
    for name in given:
        what, protocol, is_used = _use_of(name, listeners)
        if not is_used:
            raise StartError(
                f"setting '{name}' is given, but no listener has {what}: expected one with the protocol {protocol}, as"
                f" in --listen {protocol}://0.0.0.0:9093"
            )
    own = tuple(
        listener._replace(settings=values_of_listener(given, listener.name, environment)) for listener in listeners
    )
    for listener in own:
        _ = listener.max_connections, listener.max_connection_creation_rate  # raises StartError
    return own


def _use_of(setting: str, listeners: Sequence[Listener]) -> tuple[str, str, bool]:
    """What uses a setting of listeners, a protocol that has it, and whether a listener has such a protocol."""
    row = find_listener_setting(setting)
    if row is not None and row.is_own:
        return "connections", PLAINTEXT, True
    if row is not None and row.name.startswith(TLS_WORDS):
        return "TLS", SSL, any(listener.has_tls for listener in listeners)
    return "SASL", SASL_SSL, any(listener.has_sasl for listener in listeners)


def check_exposed(listeners: Sequence[Listener], insecure: bool) -> None:
    """Raise StartError for a listener that other machines can reach, and that neither encrypts nor authenticates.

    ``insecure``: there may be such listeners.
    """
    for listener in () if insecure else listeners:
        if listener.protocol == PLAINTEXT and is_reachable(listener):
            raise StartError(
                f"other machines can reach the listener {listener.name} on {listener.listen}, and it neither encrypts"
                " nor authenticates: expected a listener with the protocol SASL_SSL or SSL (docs/security.md), an"
                " address like 127.0.0.1, or --insecure to allow this"
            )


def is_reachable(listener: Listener) -> bool:
    """Whether other machines can reach the listener."""
    host = listener.listen.host
    return host != "localhost" and not is_loopback(host)


def parse_inter_broker_listener(name: str, listeners: Sequence[Listener]) -> str:
    """The listener by which nodes of a cluster connect to each other. Raises StartError if it is not advertised.

    "" chooses PLAINTEXT, as in Kafka, or the first one that is advertised.
    """
    names = [listener.name for listener in listeners if listener.is_advertised]
    if not name:
        return PLAINTEXT if PLAINTEXT in names else names[0]
    if name.upper() not in names:
        raise StartError(
            f"bad inter broker listener name '{name}': expected an advertised listener, one of {', '.join(names)}"
        )
    return name.upper()


def format_listeners(addresses: Mapping[str, Address]) -> str:
    """The addresses in Kafka's form."""
    return ",".join(f"{name}{NAME_END}{address}" for name, address in addresses.items())


def _by_name(option: str, texts: Sequence[str]) -> dict[str, Address]:
    """The addresses by name. Raises StartError for none, and for two with one name."""
    items = [item.strip() for text in texts for item in text.split(",")]
    named = [_parse_named(option, item) for item in items if item or len(items) == 1]
    if not named:
        raise StartError(f"bad {option}: expected one or more of HOST:PORT or NAME://HOST:PORT, with commas")
    name, count = Counter(name for name, _ in named).most_common(1)[0]
    if count > 1:
        raise StartError(
            f"bad {option} '{','.join(items)}': {count} listeners have the name {name}; expected different names, as "
            "in INTERNAL://10.0.0.5:9092,EXTERNAL://10.0.0.5:9094 (an address without a name is that of PLAINTEXT)"
        )
    return dict(named)


def _parse_named(option: str, text: str) -> tuple[str, Address]:
    name, separator, address = text.rpartition(NAME_END)
    if separator and not NAME.fullmatch(name):
        raise StartError(
            f"bad {option} '{text}': expected HOST:PORT or NAME://HOST:PORT, with a name of letters, digits, dots, "
            "hyphens and underscores"
        )
    parsed = parse_advertised(address) if option == "advertised" else parse_address(option, address)
    return name.upper() or PLAINTEXT, parsed


def _check_ports(addresses: Mapping[str, Address]) -> None:
    """Kafka's rule: one port may only be that of an IPv4 and of an IPv6 address. Port 0 takes a free one."""
    for (name, address), (other, other_address) in combinations(addresses.items(), 2):
        is_same = address.port == other_address.port != 0
        if is_same and (":" in address.host) == (":" in other_address.host):
            raise StartError(
                f"the listeners {name} and {other} have the same port {address.port}: expected different ports"
            )


def _parse_protocols(text: str) -> dict[str, str]:
    """The protocols of listeners by name, from NAME:PROTOCOL,NAME2:PROTOCOL2."""
    protocols = {protocol: protocol for protocol in PROTOCOLS}
    for item in filter(None, map(str.strip, text.split(","))):
        match = MAP_ROW.fullmatch(item)
        if match is None:
            raise StartError(
                f"bad listener security protocol map '{text}': expected NAME:PROTOCOL,NAME2:PROTOCOL2, as in "
                "INTERNAL:PLAINTEXT,EXTERNAL:SSL"
            )
        protocols[match[1].upper()] = match[2].upper()
    return protocols


def _protocol(name: str, protocols: Mapping[str, str]) -> str:
    protocol = protocols.get(name)
    if protocol is None:
        raise StartError(
            f"no security protocol is defined for the listener {name}: expected it in "
            f"--listener-security-protocol-map, as in {name}:{PLAINTEXT}"
        )
    if protocol not in PROTOCOLS:
        raise StartError(f"the listener {name} has the protocol {protocol}: expected one of {', '.join(PROTOCOLS)}")
    return protocol
