"""RecordType: how the records of one key type are encoded and decoded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from ....actors.records import GroupRecord, GroupStateRecord, OffsetRecord, UnknownRecord
from ....actors.steps import Steps
from .fields import Reader

DecodedRecord = OffsetRecord | GroupRecord | GroupStateRecord | UnknownRecord


class RecordType(NamedTuple):
    """How records of a key type are encoded and decoded. A key is the type (int16), the group id, and further fields.

    ``name``: the kind of record for users of ``callboard log``. ``decode`` gets the key after its type, and the value.
    ``encode_key`` returns the key after its type; it may raise struct.error or UnicodeEncodeError. Neither function for
    values is called for a tombstone, whose value is None. ``encode_value_in_steps``: for types with long records.
    """

    name: str
    decode: Callable[[Reader, bytes | None], DecodedRecord]
    encode_key: Callable[[Any], bytes]
    encode_value: Callable[[Any], bytes]
    encode_value_in_steps: Callable[[Any], Steps[bytes]] | None = None
