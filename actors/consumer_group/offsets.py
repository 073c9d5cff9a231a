"""Whether a member may commit and fetch offsets, by its epoch (KIP-848, KIP-1251).

A commit that was on its way when the member's epoch rose is accepted for partitions that the member already had at the
epoch of the commit. Source: ``ConsumerGroup.validateOffsetCommit`` and ``validateOffsetFetch`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..errors import NO_ERROR, ErrorCode
from ..messages import Commit, OffsetCommit, OffsetFetch, TxnOffsetCommit
from ..ports import TopicsView
from .state import GroupState, Member


def check_commit(state: GroupState, request: OffsetCommit, topics: TopicsView, metadata_max: int) -> ErrorCode:
    """The error of the whole commit. ``metadata_max``: as ``commit_records``; such commits have an error anyway."""
    if request.generation_id < 0 and not state.members:
        return NO_ERROR
    member = state.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    is_version_9 = request.supports_group_id_not_found
    if not is_version_9 and not _is_classic(member):
        return ErrorCode.UNSUPPORTED_VERSION
    if _may_commit(member, request.generation_id, request.commits, topics, metadata_max):
        return NO_ERROR
    return _stale(member)


def check_txn_commit(state: GroupState, request: TxnOffsetCommit, topics: TopicsView, metadata_max: int) -> ErrorCode:
    """The same in a transaction. Producers need not send a member."""
    is_anonymous = not request.member_id and request.group_instance_id is None
    if request.generation_id < 0 and (not state.members or (is_anonymous and request.generation_id == -1)):
        return NO_ERROR
    member = state.members.get(request.member_id)
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    if _may_commit(member, request.generation_id, request.commits, topics, metadata_max):
        return NO_ERROR
    return ErrorCode.ILLEGAL_GENERATION


def check_fetch(state: GroupState, request: OffsetFetch) -> ErrorCode:
    """Admin clients send neither a member nor an epoch."""
    if request.member_id is None and request.member_epoch < 0:
        return NO_ERROR
    member = state.members.get(request.member_id or "")
    if member is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return NO_ERROR if request.member_epoch == member.current.member_epoch else _stale(member)


def _may_commit(
    member: Member, received_epoch: int, commits: Iterable[Commit], topics: TopicsView, metadata_max: int
) -> bool:
    current = member.current
    if received_epoch >= current.member_epoch:
        return received_epoch == current.member_epoch
    return all(
        _had_partition(member, received_epoch, commit, topics) or _is_metadata_too_large(commit, metadata_max)
        for commit in commits
    )


def _had_partition(member: Member, received_epoch: int, commit: Commit, topics: TopicsView) -> bool:
    """Whether the partition was the member's at this epoch, and still is, or has to be given back."""
    topic_id = topics.topic_id(commit.topic)
    if topic_id is None:
        return False
    partition, current = (topic_id, commit.partition), member.current
    epoch = current.assigned.get(partition, current.pending_revocation.get(partition))
    return epoch is not None and received_epoch >= epoch


def _is_metadata_too_large(commit: Commit, metadata_max: int) -> bool:
    return len(commit.metadata.encode("utf-16-le", "surrogatepass")) // 2 > metadata_max


def _is_classic(member: Member) -> bool:
    return member.about.classic is not None


def _stale(member: Member) -> ErrorCode:
    return ErrorCode.ILLEGAL_GENERATION if _is_classic(member) else ErrorCode.STALE_MEMBER_EPOCH
