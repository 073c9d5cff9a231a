"""Write offsets from a file to groups without members, through the coordinator of any server, and read them back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import NamedTuple

from ....actors.errors import ErrorCode
from ....actors.text import format_count
from ...client.cluster import Cluster, OffsetAndMetadata, TopicPartition
from ...client.errors import ClientError, RefusedError, describe_error_code

OFFSETS_PER_REQUEST = 200
"""This many offsets fit into one message even with the longest metadata that Kafka accepts (4096 bytes)."""

WITHOUT_MEMBERS = ("Empty", "Dead", "")
"""States of groups that can be written to. Old servers report no state, and refuse the commit itself."""


class GroupImportResult(NamedTuple):
    """The import of one group: ``written`` of ``offsets`` were written, or would be in a dry run.

    ``refused``: the reason if some were not written, else empty. ``new`` and ``changed`` count the written offsets that
    the group did not have, or had with another value. ``differences``: one text for each offset that was read back
    differently.
    """

    group: str
    offsets: int
    written: int = 0
    new: int = 0
    changed: int = 0
    refused: str = ""
    differences: tuple[str, ...] = ()


def group_states(cluster: Cluster) -> Mapping[str, str]:
    """The state of every group of the cluster."""
    return {group.group_id: group.state for group in cluster.groups()}


def preview_group(
    cluster: Cluster, group: str, targets: Mapping[TopicPartition, OffsetAndMetadata], state: str
) -> GroupImportResult:
    """The result that ``write_group`` would have. Raises ClientError when the connection fails."""
    try:
        committed = _committed(cluster, group, state)
    except RefusedError as refused:
        return GroupImportResult(group, len(targets), refused=str(refused))
    missing = _unknown_partitions(cluster, targets)
    possible = {
        topic_partition: offset for topic_partition, offset in targets.items() if topic_partition not in missing
    }
    return _make_result(group, targets, possible, committed)._replace(refused=_describe_first(missing, len(targets)))


def _unknown_partitions(
    cluster: Cluster, targets: Mapping[TopicPartition, OffsetAndMetadata]
) -> dict[TopicPartition, str]:
    """The partitions that do not exist, each with the reason for which a commit would be refused."""
    partitions: dict[str, Sequence[int]] = {}
    for topic in {topic for topic, _ in targets}:
        try:
            partitions[topic] = cluster.partitions(topic)
        except RefusedError:
            partitions[topic] = ()
    reason = describe_error_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {
        topic_partition: reason
        for topic_partition in targets
        if topic_partition[1] not in partitions[topic_partition[0]]
    }


def write_group(
    cluster: Cluster, group: str, targets: Mapping[TopicPartition, OffsetAndMetadata], state: str
) -> GroupImportResult:
    """Write a group's offsets and read them back. Raises ClientError when the connection fails."""
    refused: dict[TopicPartition, str] = {}
    try:
        committed = _committed(cluster, group, state)
        for batch in _batches(targets):
            refused |= {
                topic_partition: describe_error_code(code)
                for topic_partition, code in cluster.commit_offsets(group, batch).items()
            }
        read_back = cluster.committed(group)
    except RefusedError as error:
        return GroupImportResult(group, len(targets), refused=str(error))
    written = {topic_partition: offset for topic_partition, offset in targets.items() if topic_partition not in refused}
    differences = tuple(_differences(written, read_back))
    return _make_result(group, targets, written, committed)._replace(
        refused=_describe_first(refused, len(targets)), differences=differences
    )


def _committed(cluster: Cluster, group: str, state: str) -> Mapping[TopicPartition, OffsetAndMetadata]:
    """Raises Refused for a group with members."""
    if state not in WITHOUT_MEMBERS:
        raise RefusedError(f"it is {state}", ErrorCode.NON_EMPTY_GROUP)
    return cluster.committed(group) if state else {}


def import_groups(
    cluster: Cluster,
    targets: Mapping[str, Mapping[TopicPartition, OffsetAndMetadata]],
    groups: Iterator[str],
    is_dry: bool,
) -> Iterator[GroupImportResult]:
    """Import group by group. When the connection fails, raises a ClientError with the number of finished groups."""
    states = group_states(cluster)
    import_group = preview_group if is_dry else write_group
    for done_count, group in enumerate(groups):
        try:
            yield import_group(cluster, group, targets[group], states.get(group, ""))
        except ClientError as error:
            raise ClientError(
                f"{error}; {done_count} of {format_count(len(targets), 'group')} done, group '{group}' perhaps"
            ) from error


def _make_result(
    group: str,
    targets: Mapping[TopicPartition, OffsetAndMetadata],
    written: Mapping[TopicPartition, OffsetAndMetadata],
    committed: Mapping[TopicPartition, OffsetAndMetadata],
) -> GroupImportResult:
    new = sum(topic_partition not in committed for topic_partition in written)
    changed = sum(
        topic_partition in committed and committed[topic_partition] != offset
        for topic_partition, offset in written.items()
    )
    return GroupImportResult(group, len(targets), len(written), new, changed)


def _batches(
    targets: Mapping[TopicPartition, OffsetAndMetadata],
) -> Iterator[Mapping[TopicPartition, OffsetAndMetadata]]:
    items = iter(targets.items())
    while batch := dict(islice(items, OFFSETS_PER_REQUEST)):
        yield batch


def _describe_first(refused: Mapping[TopicPartition, str], total: int) -> str:
    if not refused:
        return ""
    (topic, partition), reason = next(iter(refused.items()))
    return f"{len(refused)} of {format_count(total, 'offset')}, {topic}:{partition} first: {reason}"


def _differences(
    written: Mapping[TopicPartition, OffsetAndMetadata], read_back: Mapping[TopicPartition, OffsetAndMetadata]
) -> Iterator[str]:
    for topic_partition, offset in written.items():
        if read_back.get(topic_partition) != offset:
            expected, actual = _format_offset(offset), _format_offset(read_back.get(topic_partition))
            yield f"{topic_partition[0]}:{topic_partition[1]} was written as {expected}, and read back as {actual}"


def _format_offset(offset: OffsetAndMetadata | None) -> str:
    if offset is None:
        return "nothing"
    return f"{offset.offset} (leader epoch {offset.leader_epoch}, metadata {offset.metadata[:40]!r})"


def describe_problems(outcomes: Sequence[GroupImportResult]) -> Iterator[str]:
    """One line for each refusal and each difference."""
    for outcome in outcomes:
        if outcome.refused:
            yield f"group '{outcome.group}': {outcome.refused}"
        for difference in outcome.differences:
            yield f"group '{outcome.group}': {difference}"
