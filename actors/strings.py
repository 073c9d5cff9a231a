"""The maximum length of strings, so that they fit into every version of every response.

Older versions of Kafka's messages have a 16-bit length; Kafka's parsers refuse longer strings in newer versions too.
Strings in requests from sockets are checked when they are decoded. This module checks strings that the coordinator
derives from them, and requests from the same process.
"""

from __future__ import annotations

from .messages import JoinGroup

STRING_BYTES_MAX = 32767
CHARACTER_BYTES_MAX = 4  # of UTF-8
MEMBER_ID_SUFFIX = "-01234567-89ab-cdef-0123-456789abcdef"  # same length as the suffix of generated member ids


def fits_kafka_string(text: str | None) -> bool:
    """Whether a string is within Kafka's limit."""
    if text is None or len(text) <= STRING_BYTES_MAX // CHARACTER_BYTES_MAX:
        return True
    return len(text.encode("utf-8", "surrogatepass")) <= STRING_BYTES_MAX


def find_too_long_string(request: JoinGroup) -> str:
    """The name of a field that would not fit into responses to other members; empty if all fields fit."""
    prefix = request.client_id if request.group_instance_id is None else request.group_instance_id
    strings = {
        "member id": request.member_id or prefix + MEMBER_ID_SUFFIX,
        "group instance id": request.group_instance_id,
        "client id": request.client_id,
        "client host": request.client_host,
        "protocol type": request.protocol_type,
    }
    for field, text in strings.items():
        if not fits_kafka_string(text):
            return field
    return "" if all(fits_kafka_string(protocol.name) for protocol in request.protocols) else "protocol name"
