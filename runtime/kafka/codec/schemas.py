"""Kafka's message schemas from kio, loaded at the first request that needs them (loading all takes 0.4 s).

kio has one dataclass for each message and version, generated from Kafka's schema files. It has only the fields of that
version. ``Schema.make`` therefore drops the values of fields that the version does not have.
"""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import fields
from functools import cache, cached_property
from typing import Any

from ...common.shared_bytes import SharedBytes
from ...log.format.varint import encode_unsigned
from .durations import duration_reader
from .frames import message_type
from .kio import kio
from .repeated_requests import REPEATED_READERS
from .stepped_reading import EntityReader, stepped_reader
from .validation import Reader, validating_reader

ERROR_MESSAGE_CHARS_MAX = 1000


class Schema:
    """Reads the requests and writes the responses of one API in one version."""

    def __init__(self, name: str, version: int) -> None:
        serial = kio("serial")
        self.name = name
        self.version = version
        self.request_type = message_type(name, version, "request")
        self.response_type = message_type(name, version, "response")
        self.flexible: bool = self.request_type.__flexible__
        # A client must be able to read the response to an ApiVersions version that it does not know: no tagged fields.
        self.flexible_header = self.flexible and name != "api_versions"
        self.decode_error: type[Exception] = kio("serial.errors").SerialError
        read = duration_reader(self.request_type, serial.entity_reader(self.request_type))
        self.read: Reader = validating_reader(self.request_type, read)
        self.read_repeated = REPEATED_READERS[name](version) if name in REPEATED_READERS else None
        self._write = serial.entity_writer(self.response_type)
        self._types = sys.modules[self.response_type.__module__]

    @cached_property
    def read_in_steps(self) -> EntityReader:
        """Reads large requests."""
        return stepped_reader(self.request_type, self.read)

    def make(self, type_name: str, **values: Any) -> Any:
        """Build an entity of the response by its class name, e.g. ``make("MetadataResponseTopic", name="t", ...)``.

        Values of fields that this version does not have are dropped. Missing values get kio's defaults.
        """
        cls = getattr(self._types, type_name)
        field_names = _field_names(cls)
        if "error_message" in values:
            values["error_message"] = shortened(values["error_message"])
        return cls(**{name: value for name, value in values.items() if name in field_names})

    def write(self, response: Any) -> bytes:
        """The body of a response as bytes, without size and header."""
        buffer = io.BytesIO()
        self._write(buffer, response)
        return buffer.getvalue()

    def write_shared(self, response: Any) -> SharedBytes:
        """The same for a response with ``SharedBytes`` in fields of bytes or records, whose parts are not copied."""
        buffer = SharedBuffer()
        self._write(buffer, response)
        return buffer.value()

    def write_item(self, entity: Any, items: Sequence[bytes] | None = None, bytes_after: int = 0) -> bytes:
        """One item of an array for ``write_array``. ``items``: the items of the array inside of it, if it has one."""
        buffer = io.BytesIO()
        kio("serial").entity_writer(type(entity))(buffer, entity)
        return buffer.getvalue() if items is None else self._filled(buffer.getvalue(), items, bytes_after)

    def write_array(self, response: Any, items: Sequence[bytes], item_count: int | None = None) -> bytes:
        """The body of a response whose last field is an array, which is empty in ``response``, with ``items`` in it.

        For arrays that are too long to be written in one turn or by kio. ``item_count``: if several are joined.
        """
        return self._filled(self.write(response), items, 0, item_count)

    def _filled(self, body: bytes, items: Sequence[bytes], bytes_after: int, item_count: int | None = None) -> bytes:
        """``bytes_after``: the size of the fields after the array."""
        item_count = len(items) if item_count is None else item_count
        flexible: bool = self.response_type.__flexible__
        bytes_after += 1 if flexible else 0  # no tagged fields
        count = encode_unsigned(item_count + 1) if flexible else item_count.to_bytes(4, "big")
        end = len(body) - bytes_after
        start = end - (1 if flexible else 4)  # the count of an empty one
        return b"".join((body[:start], count, *items, body[end:]))


class SharedBuffer:
    """A file for kio's writers that does not copy the parts of ``SharedBytes``."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._own = io.BytesIO()  # what was written since the last part

    def write(self, data: bytes | SharedBytes) -> None:
        if isinstance(data, SharedBytes):
            self._add_own()
            self._parts.extend(data.parts)
        else:
            self._own.write(data)

    def value(self) -> SharedBytes:
        self._add_own()
        return SharedBytes(self._parts)

    def _add_own(self) -> None:
        self._parts.append(self._own.getvalue())
        self._own = io.BytesIO()


def shortened(message: str | None) -> str | None:
    """An error message that fits in every version, even if it contains a name of 32 kB that the client sent."""
    if message is None or len(message) <= ERROR_MESSAGE_CHARS_MAX:
        return message
    return f"{message[:ERROR_MESSAGE_CHARS_MAX]}... ({len(message)} characters)"


@cache
def schema(name: str, version: int) -> Schema:
    """The schema of an API by kio's name for it (``join_group``), in a version that exists."""
    return Schema(name, version)


@cache
def _field_names(cls: type) -> frozenset[str]:
    return frozenset(field.name for field in fields(cls))
