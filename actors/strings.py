"""How long a string may be, so that every version of every answer can hold it.

Kafka's older versions have 16 bits for the length, and its own readers take no longer string in newer ones. Requests of
clients are checked where they are read; what is made here of their strings, and what comes from this process, is
checked by the rules of this module.
"""

from __future__ import annotations

from .messages import JoinGroup

STRING_BYTES_MAX = 32767
CHARACTER_BYTES_MAX = 4  # of UTF-8
MEMBER_ID_SUFFIX = "-01234567-89ab-cdef-0123-456789abcdef"  # what the coordinator adds for a new member's id


def fits_a_string(text: str | None) -> bool:
    """Whether a text is within Kafka's limit of a string."""
    if text is None or len(text) <= STRING_BYTES_MAX // CHARACTER_BYTES_MAX:
        return True
    return len(text.encode("utf-8", "surrogatepass")) <= STRING_BYTES_MAX


def too_long_string(request: JoinGroup) -> str:
    """What of a member would not fit into the answers to the other members; empty if all fits."""
    seat = request.client_id if request.group_instance_id is None else request.group_instance_id
    strings = {
        "member id": request.member_id or seat + MEMBER_ID_SUFFIX,
        "group instance id": request.group_instance_id,
        "client id": request.client_id,
        "client host": request.client_host,
        "protocol type": request.protocol_type,
    }
    for what, text in strings.items():
        if not fits_a_string(text):
            return what
    return "" if all(fits_a_string(protocol.name) for protocol in request.protocols) else "protocol name"
