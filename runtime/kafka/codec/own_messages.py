"""The messages of the API that Kafka does not have, as classes like those that kio generates."""

from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

from .kio import kio
from .own_api import ASK_NODE_KEY

_static = kio("static.constants")
_header = kio("schema.request_header.v2.header")
_answer_header = kio("schema.response_header.v1.header")


@dataclass(frozen=True, slots=True, kw_only=True)
class AskNodeRequest:
    """``subject``: a key of ``ask_node.SUBJECTS``. ``group_id``: the group that it is about, or "".

    ``content``: a message, as ``message_json`` writes it. ``asked_by``: from a node, on whose behalf it asks.
    """

    __type__: ClassVar = _static.EntityType.request
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = ASK_NODE_KEY
    __header_schema__: ClassVar[Any] = _header.RequestHeader
    subject: str = field(metadata={"kafka_type": "string"})
    group_id: str = field(metadata={"kafka_type": "string"})
    content: bytes = field(metadata={"kafka_type": "bytes"})
    asked_by: bytes = field(metadata={"kafka_type": "bytes"})


@dataclass(frozen=True, slots=True, kw_only=True)
class AskNodeResponse:
    """``error_code``: why there is no ``content``, with a text. An error that the group answers is in its content."""

    __type__: ClassVar = _static.EntityType.response
    __version__: ClassVar[int] = 0
    __flexible__: ClassVar[bool] = True
    __api_key__: ClassVar[int] = ASK_NODE_KEY
    __header_schema__: ClassVar[Any] = _answer_header.ResponseHeader
    error_code: Any = field(metadata={"kafka_type": "error_code"})
    error_message: str | None = field(metadata={"kafka_type": "string"})
    content: bytes = field(metadata={"kafka_type": "bytes"})


MESSAGES: Final = {"request": AskNodeRequest, "response": AskNodeResponse}
