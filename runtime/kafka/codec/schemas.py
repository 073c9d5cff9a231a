"""Kafka's message schemas, by kio, loaded when a request first needs them (all of them take 0.4 s).

kio generates one dataclass for each message and version from Kafka's own schema files. A version's class has only the
fields of that version, so answers are built with ``Schema.make``, which leaves out what the version does not have.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import cache
from typing import Any

from .durations import duration_reader
from .kio import kio
from .validation import Reader, validating_reader

ERROR_MESSAGE_CHARS_MAX = 1000


class Schema:
    """One API in one version: how to read its request and how to write its answer."""

    def __init__(self, name: str, version: int) -> None:
        serial = kio("serial")
        self.name = name
        self.version = version
        self.request_type = _message(name, version, "request")
        self.response_type = _message(name, version, "response")
        self.flexible: bool = self.request_type.__flexible__
        # An old client must be able to read the answer to an ApiVersions that is newer than itself: no tagged fields.
        self.flexible_header = self.flexible and name != "api_versions"
        self.decode_error: type[Exception] = kio("serial.errors").SerialError
        read = duration_reader(self.request_type, serial.entity_reader(self.request_type))
        self.read: Reader = validating_reader(self.request_type, read)
        self._write = serial.entity_writer(self.response_type)
        self._types = sys.modules[self.response_type.__module__]

    def make(self, type_name: str, **values: Any) -> Any:
        """Build an answer's entity by its class name, e.g. ``make("MetadataResponseTopic", name="t", ...)``.

        Values for fields that this version lacks are dropped; kio's own defaults fill what is not given.
        """
        cls = getattr(self._types, type_name)
        known = _field_names(cls)
        if "error_message" in values:
            values["error_message"] = _short(values["error_message"])
        return cls(**{name: value for name, value in values.items() if name in known})

    def write(self, response: Any) -> bytes:
        """The body of an answer as bytes, without size and header."""
        buffer = io.BytesIO()
        self._write(buffer, response)
        return buffer.getvalue()

    def write_item(self, entity: Any, items: Sequence[bytes] | None = None, behind: int = 0) -> bytes:
        """One entry of an answer's array, for ``write_array``; with ``items``, it has such an array itself."""
        buffer = io.BytesIO()
        kio("serial").entity_writer(type(entity))(buffer, entity)
        return buffer.getvalue() if items is None else self._filled(buffer.getvalue(), items, behind)

    def write_array(self, response: Any, items: Sequence[bytes]) -> bytes:
        """The body of an answer whose last field is an array: empty in ``response``, filled with ``items`` here.

        For arrays that are too long to be written in one turn, or by kio.
        """
        return self._filled(self.write(response), items, 0)

    def _filled(self, body: bytes, items: Sequence[bytes], behind: int) -> bytes:
        """``behind``: how many bytes the fields take that come after the array."""
        flexible: bool = self.response_type.__flexible__
        behind += 1 if flexible else 0  # no tagged fields
        count = _uvarint(len(items) + 1) if flexible else len(items).to_bytes(4, "big")
        end = len(body) - behind
        start = end - (1 if flexible else 4)  # the count of an empty one
        return b"".join((body[:start], count, *items, body[end:]))


def _short(message: str | None) -> str | None:
    """An error message that fits in every version, though it names what the client sent: a name may have 32 kB."""
    if message is None or len(message) <= ERROR_MESSAGE_CHARS_MAX:
        return message
    return f"{message[:ERROR_MESSAGE_CHARS_MAX]}... ({len(message)} characters)"


@cache
def schema(name: str, version: int) -> Schema:
    """The schema of an API by kio's name for it (``join_group``) and a version that is known to exist."""
    return Schema(name, version)


@cache
def _field_names(cls: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(cls))


def _uvarint(value: int) -> bytes:
    encoded = bytearray()
    while value > 0x7F:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


def _message(name: str, version: int, kind: str) -> Any:
    module = kio(f"schema.{name}.v{version}.{kind}")
    class_name = "".join(word.capitalize() for word in name.split("_")) + kind.capitalize()
    return getattr(module, class_name)
