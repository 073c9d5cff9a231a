"""The fields and the text of records of groups of the consumer protocol, for ``dump``.

A partition is written as the id of its topic, in Kafka's form, and its number.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from ....actors.consumer_group.records import (
    ClassicMember,
    CurrentRecord,
    GroupEpochRecord,
    MemberRecord,
    Partition,
    RegexRecord,
    TargetEpochRecord,
    TargetRecord,
    TopicMetadataRecord,
)


def topic_id_text(topic_id: bytes) -> str:
    """A topic id as Kafka's tools print it."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=")


def _partitions(partitions: Iterable[Partition]) -> list[str]:
    return [f"{topic_id_text(topic_id)}-{number}" for topic_id, number in partitions]


def _epochs(epochs: Mapping[Partition, int]) -> dict[str, int]:
    return dict(zip(_partitions(epochs), epochs.values(), strict=True))


# Fields --------------------------------------------------------------------------------------------------------------


def _group_epoch_fields(record: GroupEpochRecord) -> dict[str, Any]:
    return {"group": record.group_id} | ({} if record.value is None else record.value._asdict())


def _topic_metadata_fields(record: TopicMetadataRecord) -> dict[str, Any]:
    if record.value is None:
        return {"group": record.group_id}
    topics = [topic._asdict() | {"topic_id": topic_id_text(topic.topic_id)} for topic in record.value]
    return {"group": record.group_id, "topics": topics}


def _member_fields(record: MemberRecord) -> dict[str, Any]:
    key, value = {"group": record.group_id, "member_id": record.member_id}, record.value
    if value is None:
        return key
    return {**key, **value._asdict(), "classic": None if value.classic is None else _classic_fields(value.classic)}


def _classic_fields(classic: ClassicMember) -> dict[str, Any]:
    protocols = [{"name": name, "metadata": base64.b64encode(data).decode()} for name, data in classic.protocols]
    return {"session_timeout_ms": classic.session_timeout_ms, "protocols": protocols}


def _target_epoch_fields(record: TargetEpochRecord) -> dict[str, Any]:
    key, value = {"group": record.group_id}, record.value
    if value is None:
        return key
    return {**key, "assignment_epoch": value.epoch, "assignment_timestamp_ms": value.timestamp_ms}


def _target_fields(record: TargetRecord) -> dict[str, Any]:
    key, value = {"group": record.group_id, "member_id": record.member_id}, record.value
    return key if value is None else {**key, "partitions": _partitions(value)}


def _current_fields(record: CurrentRecord) -> dict[str, Any]:
    key, value = {"group": record.group_id, "member_id": record.member_id}, record.value
    if value is None:
        return key
    assigned, pending = _epochs(value.assigned), _epochs(value.pending_revocation)
    return {**key, **value._asdict(), "state": value.state.name, "assigned": assigned, "pending_revocation": pending}


def _regex_fields(record: RegexRecord) -> dict[str, Any]:
    key, value = {"group": record.group_id, "regex": record.regex}, record.value
    if value is None:
        return key
    resolved = {"topics_version": value.topics_version, "resolved_timestamp_ms": value.timestamp_ms}
    return {**key, "topics": value.topics, **resolved}


CONSUMER_FIELDS: Mapping[type, Callable[[Any], dict[str, Any]]] = {
    GroupEpochRecord: _group_epoch_fields,
    TopicMetadataRecord: _topic_metadata_fields,
    MemberRecord: _member_fields,
    TargetEpochRecord: _target_epoch_fields,
    TargetRecord: _target_fields,
    CurrentRecord: _current_fields,
    RegexRecord: _regex_fields,
}


# Text ----------------------------------------------------------------------------------------------------------------


def _format_group_epoch(record: GroupEpochRecord) -> str:
    value = record.value
    if value is None:
        return f"{record.group_id} deleted"
    return f"{record.group_id} epoch {value.epoch}, metadata hash {value.metadata_hash}"


def _format_topic_metadata(record: TopicMetadataRecord) -> str:
    if record.value is None:
        return f"{record.group_id} deleted"
    topics = ", ".join(f"{topic.name} (partitions: {topic.partition_count})" for topic in record.value)
    return f"{record.group_id} reads {topics or 'no topics'}"


def _format_member(record: MemberRecord) -> str:
    key, value = f"{record.group_id} {record.member_id}", record.value
    if value is None:
        return f"{key} deleted"
    names = [*value.topics, *([f"regex {value.regex!r}"] if value.regex else ())]
    about = [
        *([f"instance {value.instance_id}"] if value.instance_id is not None else ()),
        *([f"assignor {value.server_assignor}"] if value.server_assignor is not None else ()),
        *(["classic protocol"] if value.classic is not None else ()),
    ]
    return f"{key} subscribes to {', '.join(names) or 'no topics'}" + (f" ({', '.join(about)})" if about else "")


def _format_target_epoch(record: TargetEpochRecord) -> str:
    return f"{record.group_id} {'deleted' if record.value is None else f'assignment epoch {record.value.epoch}'}"


def _format_target(record: TargetRecord) -> str:
    key = f"{record.group_id} {record.member_id}"
    return f"{key} deleted" if record.value is None else f"{key} shall have [{' '.join(_partitions(record.value))}]"


def _format_current(record: CurrentRecord) -> str:
    key, value = f"{record.group_id} {record.member_id}", record.value
    if value is None:
        return f"{key} deleted"
    text = f"{key} epoch {value.member_epoch} {value.state.name}: has [{' '.join(_partitions(value.assigned))}]"
    pending = _partitions(value.pending_revocation)
    return f"{text}, gives back [{' '.join(pending)}]" if pending else text


def _format_regex(record: RegexRecord) -> str:
    key = f"{record.group_id} {record.regex!r}"
    return (
        f"{key} deleted" if record.value is None else f"{key} matches {', '.join(record.value.topics) or 'no topics'}"
    )


CONSUMER_FORMATTERS: Mapping[type, Callable[[Any], str]] = {
    GroupEpochRecord: _format_group_epoch,
    TopicMetadataRecord: _format_topic_metadata,
    MemberRecord: _format_member,
    TargetEpochRecord: _format_target_epoch,
    TargetRecord: _format_target,
    CurrentRecord: _format_current,
    RegexRecord: _format_regex,
}
