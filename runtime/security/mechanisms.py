"""The SASL mechanisms as a table: a row for each. A new mechanism is a module with an ``Exchange``, and a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from .credentials import SCRAM_MECHANISMS, Credential, ScramMechanism, find_credential
from .document import USERS
from .exchange import Exchange
from .oauthbearer import OAuthBearerExchange, TokenValidator
from .plain import PlainExchange, RememberedPasswords
from .scram import ScramExchange
from .store import SecurityStore


class MechanismParts(NamedTuple):
    """What exchanges need. ``new_nonce``: random printable characters without a comma.

    ``tokens``: None if OAUTHBEARER is not enabled.
    """

    store: SecurityStore
    remembered: RememberedPasswords
    new_nonce: Callable[[], str]
    tokens: TokenValidator | None = None

    def find(self, name: str, mechanism: ScramMechanism) -> Credential | None:
        return find_credential(self.store.get(USERS), name, mechanism)


class Mechanism(NamedTuple):
    """``sends_password``: whether whoever reads the bytes learns a password or token, so that it needs TLS."""

    name: str
    begin: Callable[[MechanismParts], Exchange]
    sends_password: bool = False


def _plain(parts: MechanismParts) -> Exchange:
    return PlainExchange(parts.find, parts.store.secret, parts.remembered)


def _scram(mechanism: ScramMechanism, parts: MechanismParts) -> Exchange:
    return ScramExchange(mechanism, lambda name: parts.find(name, mechanism), parts.store.secret, parts.new_nonce())


def _oauthbearer(parts: MechanismParts) -> Exchange:
    assert parts.tokens is not None, "a listener with OAUTHBEARER has it"
    return OAuthBearerExchange(parts.tokens)


OAUTHBEARER: Final = "OAUTHBEARER"

MECHANISMS: Mapping[str, Mechanism] = {
    row.name: row
    for row in (
        Mechanism("PLAIN", _plain, sends_password=True),
        *(Mechanism(scram.name, partial(_scram, scram)) for scram in SCRAM_MECHANISMS),
        Mechanism(OAUTHBEARER, _oauthbearer, sends_password=True),
    )
}
