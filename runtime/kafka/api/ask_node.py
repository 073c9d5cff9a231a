"""AskNode (20000): a message to a group, from another node of the cluster or from Callboard's own client.

Kafka has no such request. A node proves who it is by its client id, see ``cluster.credentials``, and needs no right. A
client needs the rights on the group, and has to be authenticated if there are ACLs. It may ask only what no request of
Kafka's does.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from ....actors.errors import ErrorCode
from ....actors.group.reset_messages import ResetOffset, ResetOffsets
from ....actors.messages import ExplainGroup
from ....actors.recorder.flight_recorder import FlightRecorder
from ....actors.steps import Steps, pieces
from ....actors.text import printable
from ...security.audit import AskedBy
from ..audit.audited import asked, who
from ..audit.audited_groups import watch_change
from ..audit.group_changes import CHANGING
from ..authentication.principal import ANONYMOUS
from ..authorization.authorize import allows_everything, authorize, authorize_in_steps
from ..authorization.checks import READ_TOPIC
from ..call import Call, EncodingJob
from ..codec.codes import kafka_error
from ..codec.message_json import BadMessage, read_in_steps, read_message, write_in_steps
from ..explained import Explaining, ToExplain, recorded_in_steps
from ..node_lists import find_offsets, last_rebalances, read_groups, read_topics
from ..node_subjects import (
    SUBJECTS,
    FindOffsets,
    ReadGroups,
    ReadRebalances,
    ReadResets,
    ReadTopics,
    ResetsRead,
    Subject,
)
from ..peer_gate import Purpose

CONTENT_BYTES_MAX: Final = 1_000_000
"""A reset of more than 10,000 partitions."""

CLIENT_CONTENT_BYTES_MAX: Final = 100_000
"""Of a client: a reset of some thousand partitions. A longer message would hold up the event loop while it is read."""

REASON_CHARACTERS_MAX: Final = 1000
CHANGE_ID_CHARACTERS_MAX: Final = 36
OFFSET_MAX: Final = 2**63 - 1


class Refused(Exception):
    """Why a request is not answered."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


def handle(call: Call) -> Steps[None]:
    try:
        yield from _handle(call)
    except Refused as refused:
        _respond(call, refused.code, str(refused))


def _handle(call: Call) -> Steps[None]:
    request = call.request
    subject = SUBJECTS.get(request.subject)
    if subject is None:
        known = ", ".join(SUBJECTS)
        raise Refused(ErrorCode.UNSUPPORTED_VERSION, f"subject {request.subject[:100]!r}: expected one of {known}")
    is_node = _is_node(call)
    if not is_node:
        _authorize(call, subject)
    message = yield from _read(call, subject, CONTENT_BYTES_MAX if is_node else CLIENT_CONTENT_BYTES_MAX)
    if isinstance(message, ResetOffsets) and not is_node:
        yield from _check_reset(call, message)
    if isinstance(message, ReadTopics):
        yield from _respond_in_steps(call, (yield from read_topics(call.services.topics, message)))
    elif isinstance(message, FindOffsets):
        yield from _respond_in_steps(call, (yield from find_offsets(call.services.topics, message)))
    elif isinstance(message, ReadGroups):
        reply = yield from read_groups(call.services.groups, message)
        if reply is None:
            raise Refused(ErrorCode.NOT_COORDINATOR, f"partition {message.partition} of the groups is not loaded here")
        yield from _respond_in_steps(call, reply)
    elif isinstance(message, ReadRebalances):
        recorder, now_ms = call.services.groups.event_log.recorder, call.services.clock.wall_ms()
        yield from _respond_in_steps(call, (yield from last_rebalances(recorder, message.groups, now_ms)))
    elif isinstance(message, ReadResets):
        call.services.reset_records().read(message, partial(_respond_with_resets, call))
    elif type(message) in CHANGING:
        _watch(call, message, _asked_by(call) if is_node else AskedBy(who(call.connection), asked(call), ""))
    elif isinstance(message, ExplainGroup):
        recorder = call.services.groups.event_log.recorder

        def encode(call: Call, answer: ToExplain) -> Steps[bytes]:
            return _explained(call, recorder, answer, is_node)

        call.ask_group_through(message, encode, Explaining(call, recorder))
    else:
        call.ask_group(message, _encode)


def _is_node(call: Call) -> bool:
    """Raises Refused for a client that claims to be a node."""
    client_id, gate = call.connection.client_id, call.services.peer_gate
    if not client_id.startswith(f"{Purpose.QUESTIONS}/"):
        return False
    if gate is None or gate.admit(client_id, call.connection, Purpose.QUESTIONS) is None:
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "the client id does not prove that this is a node")
    return True


def _authorize(call: Call, subject: Subject) -> None:
    if not subject.checks:
        text = f"only nodes of a cluster ask for {call.request.subject}: clients have a request of Kafka's"
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, text)
    for check in subject.checks:
        if authorize(call, check, (call.request.group_id,)).error:
            raise Refused(check.denial.code, f"{check.denial.message} {check.operation.name} is needed.")
    if call.principal == ANONYMOUS and not allows_everything(call):
        text = "The client has to be authenticated, since there are ACLs."
        raise Refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, text)


def _read(call: Call, subject: Subject, bytes_max: int) -> Steps[Any]:
    request = call.request
    if len(request.content) > bytes_max:
        text = f"a message of {len(request.content)} bytes: expected at most {bytes_max}, so send several"
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    try:
        message = yield from read_in_steps(subject.message, request.content)
    except BadMessage as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error
    if message.group_id != request.group_id:
        text = f"a message to the group {message.group_id[:100]!r}: expected one to {request.group_id[:100]!r}"
        raise Refused(ErrorCode.INVALID_REQUEST, text)
    return message


def _check_reset(call: Call, message: ResetOffsets) -> Steps[None]:
    """Raises Refused unless a client may send this reset. A node has checked its own."""
    verdicts = yield from authorize_in_steps(call, READ_TOPIC, (row.topic for row in message.offsets))
    if verdicts.error:
        denied = printable(", ".join(sorted(verdicts.denied))[:300])
        raise Refused(verdicts.error, f"{READ_TOPIC.denial.message} {denied}")
    for name, text, length_max in (
        ("reason", message.reason, REASON_CHARACTERS_MAX),
        ("change id", message.change_id, CHANGE_ID_CHARACTERS_MAX),
    ):
        if len(text) > length_max:
            text = f"a {name} of {len(text)} characters: expected at most {length_max}"
            raise Refused(ErrorCode.INVALID_REQUEST, text)
    seen: set[tuple[str, int]] = set()
    for piece in pieces(message.offsets):
        for row in piece:
            _check_offset(call, row, seen)
        yield


def _check_offset(call: Call, row: ResetOffset, seen: set[tuple[str, int]]) -> None:
    """``seen``: the partitions before it."""
    partition = f"partition {row.partition} of topic {row.topic[:249]!r}"
    topic = call.services.topics.get(row.topic)
    if topic is None or not 0 <= row.partition < len(topic.partitions):
        raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no {partition}")
    if row.offset is not None and not 0 <= row.offset <= OFFSET_MAX:
        raise Refused(ErrorCode.INVALID_REQUEST, f"offset {row.offset} of {partition}: expected 0 to {OFFSET_MAX}")
    if (row.topic, row.partition) in seen:
        raise Refused(ErrorCode.INVALID_REQUEST, f"{partition} is there twice")
    seen.add((row.topic, row.partition))


def _asked_by(call: Call) -> AskedBy:
    try:
        caller: AskedBy = read_message(AskedBy, call.request.asked_by)
    except BadMessage as error:
        raise Refused(ErrorCode.INVALID_REQUEST, str(error)) from error
    return caller._replace(asked=caller.asked._replace(done_on=call.services.cluster.node_id))


def _watch(call: Call, message: Any, caller: AskedBy) -> None:
    """Change a group, and record it. The message is sent after the one that asks for its offsets before."""
    if call.services.audit.refusal:
        raise Refused(ErrorCode.KAFKA_STORAGE_ERROR, call.services.audit.refusal)
    watch_change(call, message, caller, lambda: call.ask_group(message, _encode))


# Answers -------------------------------------------------------------------------------------------------------------


def _explained(call: Call, recorder: FlightRecorder, answer: ToExplain, is_node: bool) -> Steps[bytes]:
    return (yield from _encode(call, (yield from recorded_in_steps(call, recorder, answer, is_node=is_node))))


def _encode(call: Call, reply: Any) -> Steps[bytes]:
    content = yield from write_in_steps(reply)
    return call.schema.write(_answer(call, ErrorCode.NONE, None, content))


def _respond_in_steps(call: Call, reply: Any) -> Steps[None]:
    call.respond_with_bytes((yield from _encode(call, reply)))


def _respond_with_resets(call: Call, found: ResetsRead | OSError) -> None:
    if isinstance(found, OSError):
        _respond(call, ErrorCode.KAFKA_STORAGE_ERROR, f"the records of resets: {found.strerror or found}")
    else:
        call.services.slices.run_in_turn(EncodingJob(call, _encode(call, found)))


def _respond(call: Call, code: ErrorCode, text: str) -> None:
    call.respond(_answer(call, code, text, b""))


def _answer(call: Call, code: ErrorCode, text: str | None, content: bytes) -> Any:
    return call.make("AskNodeResponse", error_code=kafka_error(code), error_message=text, content=content)
