"""The client id by which a node proves to another one that it belongs to the cluster. Pure.

Whoever can read the store of the cluster knows its secret. The proof is for one connection to one session, and for one
purpose. So it does
not help anybody who has read it from the network to talk to another node, or to the same one by another connection,
unless his request arrives before the first one of its sender.
"""

from __future__ import annotations

import hashlib
import hmac

from ..kafka.peer_gate import Purpose, Sender

SECRET_BYTES = 32
DIGITS_MAX = 20


def client_id(secret: bytes, sender: Sender, target_session: str, purpose: Purpose = Purpose.TRANSACTIONS) -> str:
    """The client id of all requests on one connection."""
    return "/".join((purpose, *map(str, sender), _proof(secret, sender, target_session, purpose)))


def parse_client_id(
    secret: bytes, text: str, target_session: str, purpose: Purpose = Purpose.TRANSACTIONS
) -> Sender | None:
    """The node that has sent a request to this session. None for a client, a wrong proof, or another purpose."""
    prefix, *fields = text.split("/")
    if prefix != purpose or len(fields) != 4 or not (_is_number(fields[1]) and _is_number(fields[2])):
        return None
    sender = Sender(fields[0], int(fields[1]), int(fields[2]))
    is_proven = hmac.compare_digest(fields[3].encode(), _proof(secret, sender, target_session, purpose).encode())
    return sender if is_proven else None


def _is_number(text: str) -> bool:
    """int() raises ValueError from 4300 digits on."""
    return text.isascii() and text.isdecimal() and len(text) <= DIGITS_MAX


def _proof(secret: bytes, sender: Sender, target_session: str, purpose: Purpose) -> str:
    """One for transactions does not name its purpose, as in versions that had no other."""
    named = () if purpose is Purpose.TRANSACTIONS else (purpose,)
    message = "/".join((*named, *map(str, sender), target_session)).encode()
    return hmac.new(secret, message, hashlib.sha256).hexdigest()
